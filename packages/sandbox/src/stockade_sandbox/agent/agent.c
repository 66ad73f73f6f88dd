/* Pid 1 of a sandbox: runs one persistent shell and programs beside it. README.md has the protocol. */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAITING_MS = 5000, OWN_FDS = 6 };

struct config config = {.shell_fd = -1};
static bool configured;
static int signal_fd;

_Noreturn void die(const char *why) {
    if (why) {
        char line[160];
        struct text text = text_in(line, sizeof line);
        text_add(&text, "stockade agent: ");
        text_add(&text, why);
        text_add(&text, "\n");
        if (write(2, line, strlen(line)) < 0) why = line;  /* nobody listens; it ends all the same */
    }
    kill_everything();
    _exit(why ? 1 : 0);
}

void new_pipe(int ends[2]) {
    if (pipe2(ends, O_CLOEXEC) < 0) die("no pipe");
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
}

static void reap(void) {
    struct signalfd_siginfo ignored;
    while (read(signal_fd, &ignored, sizeof ignored) > 0) {}
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid == shell.dying) shell.dying = 0;
        if (pid == shell.checkpoint) shell.checkpoint = 0;
        else if (pid == shell.child.pid) shell_died(status);
        else programs_died(pid, status);
    }
    shell_thaw();
    shell_trigger();
}

static void on_config(const uint8_t *at, const uint8_t *end) {
    if (configured) die("configured twice");
    config.nproc = take_u64(&at, end);
    config.nofile = take_u64(&at, end);
    config.fsize = take_u64(&at, end);
    config.data = take_u64(&at, end);
    config.streams = take_u32(&at, end);
    if (config.streams != 1 && config.streams != 2) die("bad configuration");
    config.cwd = strdup(take_string(&at, end));
    uint32_t count = take_u32(&at, end);
    if (count == 0 || count > MAX_ARGS || !config.cwd || strlen(config.cwd) >= sizeof shell.last_cwd) die("bad configuration");
    config.shell = calloc(count, sizeof *config.shell);
    if (!config.shell) die("no memory");
    for (config.shell_args = 0; config.shell_args < count; config.shell_args++)
        config.shell[config.shell_args] = strdup(take_string(&at, end));
    strcpy(shell.last_cwd, config.cwd);
    configured = true;
    shell_open();
}

static void on_run(const uint8_t *at, const uint8_t *end) {
    if (!configured || job.active) die("a request at the wrong time");
    job.active = true;
    job.phase = WAITING;
    job.id = take_u32(&at, end);
    job.timeout_ms = take_u32(&at, end);
    job.grace_ms = take_u32(&at, end);
    job.deadline_ms = job.timeout_ms ? now_ms() + job.timeout_ms + WAITING_MS : 0;  /* a shell slow to wake is not its fault */
    job.flags = job.status = 0;
    job.error[0] = 0;
    job.closed[0] = job.closed[1] = false;
    snapshot_renew(&job.before);
    job.out[0] = shell.out[0];
    job.out[1] = shell.err[0];
    if (ftruncate(shell.text, 0) < 0 || lseek(shell.text, 0, SEEK_SET) < 0) die("the command cannot be written");
    for (ssize_t sent; at < end; at += sent)
        if ((sent = write(shell.text, at, (size_t)(end - at))) <= 0) die("no memory for a request");
    lseek(shell.text, 0, SEEK_SET);
    shell_forget_exports();
    if (!shell.child.pid) shell_recover();
    shell_trigger();
}

/* Before any command runs, so that none can have taken the port. */
static void on_listen(const uint8_t *at, const uint8_t *end) {
    uint32_t port = take_u32(&at, end), everywhere = take_u32(&at, end);
    if (!shell.answered || job.active || port > UINT16_MAX) die("a request at the wrong time");
    const char *error = connections_listen((uint16_t)port, everywhere);
    stream_listening(error ? error : "");
}

static void on_kill(const uint8_t *at, const uint8_t *end) {
    uint32_t id = take_u32(&at, end);
    struct scope running = {.shell = job.active && job.phase == RUNNING ? 0 : shell.child.pid, .spare = shell.checkpoint};
    if (!id) kill_all(&running);
    else if (job.active && id == job.id) job_end(KILLED);
    else programs_kill(id);
}

static void on_request(const struct frame *frame) {
    const uint8_t *at = frame->payload, *end = at + frame->length;
    switch (frame->type) {
        case REQ_CONFIG: on_config(at, end); break;
        case REQ_RUN: on_run(at, end); break;
        case REQ_START:
            if (!configured) die("a request at the wrong time");
            programs_start(at, end);
            break;
        case REQ_KILL: on_kill(at, end); break;
        case REQ_LISTEN: on_listen(at, end); break;
        case REQ_DATA: connections_data(at, end); break;
        case REQ_TAKEN: connections_taken(at, end); break;
        case REQ_CLOSE: connections_close(at, end); break;
        case REQ_RESIZE: programs_resize(at, end); break;
        case REQ_SIGNAL: programs_signal(at, end); break;
        default: die("an unknown request");
    }
}

/* HELLO waits for the answer to CONFIG: the host is woken once. */
static bool speaks(void) {
    return shell.answered && !job_holds() && !(stream_room() && programs_are_young());
}

static void serve(int in, int out) {
    struct frame frame;
    bool turn = false;
    for (;;) {
        bool reading = job.active && job.phase != WAITING && job.phase != DRAINING && stream_room();
        struct pollfd polled[OWN_FDS + MAX_POLLED] = {
            {signal_fd, POLLIN, 0},
            {in, POLLIN, 0},
            {stream_pending() && speaks() ? out : -1, POLLOUT, 0},
            {configured ? shell.report[0] : -1, POLLIN, 0},
            {reading && !job.closed[0] ? job.out[0] : -1, POLLIN, 0},
            {reading && !job.closed[1] ? job.out[1] : -1, POLLIN, 0},
        };
        int timeout = programs_timeout(connections_timeout(shell_timeout(job_timeout())));
        size_t carried = connections_poll(polled + OWN_FDS);
        if (poll(polled, OWN_FDS + carried, timeout) < 0 && errno != EINTR) die("poll");
        procs_stale();
        bool last = turn = !turn;    /* where there is room for one of them only, it is now this one, now that */
        if (!last) job_read_output(polled + 4);
        if (polled[3].revents) shell_read_reports();
        if (polled[0].revents) reap();
        shell_thaw();
        if (polled[1].revents)
            while (stream_next(&frame)) on_request(&frame);
        shell_hurry();
        job_advance();
        connections_serve(polled + OWN_FDS);
        if (last) job_read_output(polled + 4);
        programs_advance();
        if (speaks()) stream_flush();
    }
}

/* Everything inherited but these is closed: a descriptor of the host's must not reach a command. -1 is none. */
static void keep_only(const int kept[], size_t count) {
    for (int next = 3; next >= 0;) {
        int low = -1;
        for (size_t i = 0; i < count; i++)
            if (kept[i] >= next && (low < 0 || kept[i] < low)) low = kept[i];
        if (low != next) syscall(SYS_close_range, next, low < 0 ? ~0u : (unsigned)low - 1, 0);
        next = low < 0 ? -1 : low + 1;
    }
}

static bool number_of(const char *word, uint64_t *number) {
    return read_number(&word, number) && *number <= INT_MAX && !*word;
}

/* One more lock on what the sandbox and the filter refuse already, landlock(7): for us and all that we start no device
 * file is made, no mount changed, and no signal or abstract socket reaches who is outside. Nothing where the kernel has
 * not got it (Linux 5.19; 6.12 for signals and sockets), or where programs may gain rights: there is no sandbox then. */
static void lock_further(void) {
    enum { CREATE = 444, ADD_RULE = 445, RESTRICT = 446, VERSION = 1, BENEATH = 1 };
    enum { MAKE_CHAR = 1 << 6, MAKE_BLOCK = 1 << 11, REFER = 1 << 13, SOCKETS = 1, SIGNALS = 2 };
    long version = syscall(CREATE, NULL, 0, VERSION);
    if (version < 2 || getpid() != 1 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return;
    struct { uint64_t files, ports, scopes; } all = {MAKE_CHAR | MAKE_BLOCK | REFER, 0, version < 6 ? 0 : SOCKETS | SIGNALS};
    struct __attribute__((packed)) { uint64_t allowed; int32_t folder; } moving = {REFER, open("/", O_PATH | O_CLOEXEC)};
    int rules = (int)syscall(CREATE, &all, sizeof all, 0);
    if (syscall(ADD_RULE, rules, BENEATH, &moving, 0) < 0 || syscall(RESTRICT, rules, 0) < 0) die("landlock");
    close(rules);
    close(moving.folder);
}

/* No program here ever gets a right that we have not got: one that looks into others, least of all. */
static void bound_rights(void) {
    for (unsigned long number = 0; prctl(PR_CAPBSET_READ, number) >= 0; number++)
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, number, 0, 0) != 1 && prctl(PR_CAPBSET_DROP, number) < 0) die("rights");
}

int main(int argc, char **argv) {
    uint64_t fd = 0, shell_fd = 3, user = 0;
    if (argc < 2 || argc > 4 || !number_of(argv[1], &fd) || (fd && fd < 3) || (argc > 2 && !number_of(argv[2], &shell_fd))
        || shell_fd < 3 || (argc > 3 && !number_of(argv[3], &user))) die("usage: agent FD [SHELL [USER]]");
    int in = (int)fd, out = (int)fd;
    if (argc > 2) config.shell_fd = (int)shell_fd;
    config.user = (uid_t)user;
    if (fd == 0) {
        in = fcntl(0, F_DUPFD, 3);
        out = fcntl(1, F_DUPFD, 3);
    }
    if (config.shell_fd >= 0 && fcntl(config.shell_fd, F_SETFD, FD_CLOEXEC) < 0) die("no such shell");
    keep_only((const int[]){in, out, config.shell_fd}, 3);
    int null = open("/dev/null", O_RDWR);
    if (in < 0 || out < 0 || null < 0) die("no descriptors");
    dup2(null, 0);
    dup2(null, 1);
    if (null > 2) close(null);
    fcntl(in, F_SETFD, FD_CLOEXEC);
    fcntl(out, F_SETFD, FD_CLOEXEC);
    setsid();
    lock_further();
    if (config.user) bound_rights();
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t all, child;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0) die("no signalfd");
    stream_open(in, out);
    stream_hello();
    serve(in, out);
}
