/* Pid 1 of a sandbox: runs one persistent shell and, beside it, one program at a time. README.md has the protocol. */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DRIVER_FILE "driver.bash"
__asm__(".section .rodata\n.global driver\ndriver: .incbin \"" DRIVER_FILE "\"\n.byte 0\n"
        ".section .note.GNU-stack,\"\",@progbits\n.text");
extern char driver[];

enum { KILL_ROUNDS = 50, TERMINATE_TICK_MS = 10, KILL_TICK_MS = 1 };
enum { WAITING_MS = 5000, RECOVERY_MS = 2000, EXIT_TIMED_OUT = 124 };
enum { OWN_FDS = 6 };
enum { EXIT_CANNOT = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };
enum kind { IDLE, RUN, EXEC };
enum phase { WAITING, RUNNING, TERMINATING, KILLING, DRAINING };

static struct config config;
static bool configured, answered_config;

/* The shell. `checkpoint` sleeps with the state from before the last command; `dying` is the one before it. */
static struct {
    struct child child;
    pid_t checkpoint, dying;
    bool fresh, waiting, thaw;
    int text, trigger[2][2], in, report[2], out[2], err[2];
    uint32_t flags;              /* what befell it since the last DONE */
    char last_cwd[PATH_MAX];
} shell = {.child = {.status_fd = -1}};

static struct {
    enum kind kind;
    enum phase phase;
    uint32_t id, timeout_ms, grace_ms, status, flags;
    uint64_t deadline_ms;        /* of the phase; 0: none */
    struct snapshot before;
    struct child child;          /* EXEC */
    int out[2];                  /* stdout and stderr as they are read */
    bool closed[2];
    int remaining[2];            /* DRAINING */
    int rounds;
    char error[200];
} job = {.child = {.status_fd = -1}};

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

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int bytes_in(int fd) {
    int count = 0;
    return ioctl(fd, FIONREAD, &count) < 0 ? 0 : count;
}

static void new_pipe(int ends[2]) {
    if (pipe2(ends, O_CLOEXEC) < 0) die("no pipe");
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
}

/* ---- the shell ---- */

/* Nobody else reads now; the read end stays blocking because the shell shares it. */
static void drain_trigger(int which) {
    char rest[64];
    for (int left; (left = bytes_in(shell.trigger[which][0])) > 0;)
        if (read(shell.trigger[which][0], rest, left < 64 ? (size_t)left : 64) <= 0) return;
}

static const char *current_cwd(void) {
    pid_t pid = shell.child.pid ? shell.child.pid : shell.checkpoint;
    ssize_t length = pid && !shell.fresh ? readlink(proc_path(pid, "cwd"), shell.last_cwd, sizeof shell.last_cwd - 1) : -1;
    if (length >= 0) shell.last_cwd[length] = 0;
    return shell.last_cwd;
}

static bool start_shell(void) {
    size_t n = config.shell_args;
    char *argv[n + 5];
    memcpy(argv, config.shell, n * sizeof *argv);
    argv[n] = "-c";
    argv[n + 1] = "builtin eval \"$1\"; builtin shift; builtin eval \"$__stockade_main\"";
    argv[n + 2] = "bash";
    argv[n + 3] = driver;
    argv[n + 4] = NULL;
    drain_trigger(0);
    drain_trigger(1);
    shell.in = 0;
    shell.fresh = true;
    shell.waiting = false;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return false;
    const int from[] = {null, shell.out[1], shell.err[1], shell.text, shell.trigger[0][0], shell.trigger[1][0],
                        shell.report[1], shell.out[1], shell.err[1]};
    const int to[] = {0, 1, 2, 50, 51, 52, 53, 54, 55};
    int cwd = open(shell.last_cwd, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool started = spawn(&shell.child, &config, argv, cwd, config.cwd, from, to, sizeof to / sizeof *to);
    close(null);
    if (cwd >= 0) close(cwd);
    return started;
}

static void open_shell_files(void) {
    shell.text = memfd_create("command", MFD_CLOEXEC);
    if (shell.text < 0) die("no memfd");
    for (int i = 0; i < 2; i++)
        if (pipe2(shell.trigger[i], O_CLOEXEC) < 0) die("no pipe");
    new_pipe(shell.report);
    new_pipe(shell.out);
    new_pipe(shell.err);
}

static void answer_config(const char *error) {
    if (!answered_config) stream_done(0, error ? EXIT_CANNOT : 0, error ? SPAWN_FAILED : 0, current_cwd(), error ? error : "");
    answered_config = true;
}

static void finish(uint32_t status);

static void cannot_spawn(const char *error, uint32_t status) {
    struct text text = text_in(job.error, sizeof job.error);
    text_add(&text, error);
    job.flags |= SPAWN_FAILED;
    finish(status);
}

static void shell_cannot_start(const char *error) {
    answer_config(error);
    if (job.kind != RUN) return;
    cannot_spawn(error, EXIT_CANNOT);
}

/* Not before the older checkpoint is gone, which reads the same pipe. */
static void thaw(void) {
    if (!shell.thaw || shell.dying) return;
    shell.thaw = false;
    drain_trigger(shell.in);
    shell.in = !shell.in;
    if (write(shell.trigger[shell.in][1], "go\n", 3) != 3) die("the checkpoint cannot be woken");
}

/* A new shell for one that is gone: the checkpoint, else a fresh one. */
static void recover(void) {
    if (shell.child.pid) return;
    if (shell.checkpoint && descends(shell.checkpoint, getpid())) {
        shell.flags |= SHELL_RESTORED;
        shell.child = (struct child){.pid = shell.checkpoint, .status_fd = -1};
        shell.checkpoint = 0;
        shell.thaw = true;
        shell.fresh = false;
        thaw();
    } else {
        shell.flags = (shell.flags & ~(uint32_t)SHELL_RESTORED) | SHELL_RESTARTED;
        shell.checkpoint = 0;
        if (!start_shell()) shell_cannot_start(error_name(errno));
    }
}

static void start_clock(void) {
    job.phase = RUNNING;
    job.deadline_ms = job.timeout_ms ? now_ms() + job.timeout_ms : 0;
}

static void trigger(void) {
    if (job.kind != RUN || job.phase != WAITING || !shell.waiting) return;
    char line[16];
    struct text text = text_in(line, sizeof line);
    text_add_number(&text, job.id);
    text_add(&text, "\n");
    if (write(shell.trigger[shell.in][1], line, strlen(line)) < 0) die("the shell cannot be told");
    start_clock();
}

static void on_checkpoint(pid_t pid, pid_t of) {
    pid_t self = getpid();
    if (pid <= 1 || pid == self || pid == shell.child.pid || pid == shell.checkpoint || !descends(pid, self)) return;
    if (of != shell.child.pid) {  /* of a shell that is gone */
        kill(pid, SIGKILL);
        return;
    }
    if (shell.checkpoint) {
        kill(shell.checkpoint, SIGKILL);
        shell.dying = shell.checkpoint;
    }
    shell.checkpoint = pid;
}

/* One line of the shell's report. A command can forge these, and would only fool itself; nonsense is passed over. */
static void on_report(const char *line) {
    uint64_t id, status;
    char kind = *line++;
    if (kind == 'D' && read_number(&line, &id) && read_number(&line, &status)) {
        if (job.kind != RUN || job.phase != RUNNING || job.id != id) return;
        shell.waiting = strcmp(line, " s") == 0;
        if (shell.waiting) job.flags |= SYNTAX;
        finish(status & 255);
    } else if (job.kind == RUN && job.phase == RUNNING) {
        return;
    } else if (kind == 'K' && read_number(&line, &id) && read_number(&line, &status)) {
        if (id < INT_MAX && status < INT_MAX) on_checkpoint((pid_t)id, (pid_t)status);
    } else if (kind == 'N' && !*line) {
        shell.waiting = true;
        shell.fresh = false;
        /* `kill 0` must not reach it. The process between is gone by now, so a living checkpoint is our child. */
        if (shell.checkpoint && setpgid(shell.checkpoint, shell.checkpoint) < 0) shell.checkpoint = 0;
        if (shell.child.status_fd >= 0) close(shell.child.status_fd);
        shell.child.status_fd = -1;
        answer_config(NULL);
        trigger();
        if (job.kind == IDLE) snapshot_take(&job.before);  /* while the host thinks */
    }
}

static void read_reports(void) {
    static char line[256];
    static size_t have;
    char bytes[1024];
    ssize_t got = read(shell.report[0], bytes, sizeof bytes);
    for (ssize_t i = 0; i < got; i++) {
        if (bytes[i] != '\n' && bytes[i] != '\r') {
            if (have < sizeof line) line[have++] = bytes[i];
            continue;
        }
        if (have && have < sizeof line) {
            line[have] = 0;
            on_report(line);
        }
        have = 0;
    }
}

/* ---- the job ---- */

/* What was written before the end is in the pipes by now: exactly that is still read. */
static void finish(uint32_t status) {
    job.status = status;
    job.phase = DRAINING;
    job.deadline_ms = now_ms() + RECOVERY_MS;
    for (int i = 0; i < 2; i++) job.remaining[i] = job.out[i] < 0 ? 0 : bytes_in(job.out[i]);
}

static void close_job(void) {
    const char *cwd = current_cwd();
    stream_done(job.id, job.status, job.flags | shell.flags, cwd, job.error);
    shell.flags = 0;
    if (job.kind == EXEC)
        for (int i = 0; i < 2; i++)
            if (job.out[i] >= 0) close(job.out[i]);
    job.kind = IDLE;
}

/* Whether the checkpoint still lived is known when it speaks: a signal that killed both may reach it later. */
static bool recovering(void) {
    return shell.flags && shell.child.pid && !shell.waiting && now_ms() < job.deadline_ms;
}

static void drain(void) {
    for (int i = 0; i < 2; i++)
        while (job.remaining[i] > 0) {
            if (!stream_room()) return;
            int got = (int)stream_output(job.id, (uint8_t)(i + 1), job.out[i], (size_t)job.remaining[i]);
            job.remaining[i] = got ? job.remaining[i] - got : 0;
            stream_flush();
        }
    if (!recovering()) close_job();
}

static pid_t job_shell(void) { return job.kind == RUN ? shell.child.pid : 0; }

/* The shell is stopped first, so that it does not go on with its next line when the program before it ends. */
static void end_job(uint32_t why) {
    if (job.phase > RUNNING) return;
    job.flags |= why;
    if (job.kind == RUN && job.phase == WAITING && shell.checkpoint) kill(shell.checkpoint, SIGKILL);  /* as broken */
    if (job_shell()) kill(job_shell(), SIGSTOP);
    signal_new(&job.before, job_shell(), shell.checkpoint, SIGTERM);
    signal_new(&job.before, job_shell(), shell.checkpoint, SIGCONT);
    job.phase = TERMINATING;
    job.rounds = 0;
    job.deadline_ms = now_ms() + job.grace_ms;
}

static void keep_ending(void) {
    if (job.phase == TERMINATING) {
        if (now_ms() < job.deadline_ms && signal_new(&job.before, job_shell(), shell.checkpoint, 0)) return;
        job.phase = KILLING;
    }
    if (job_shell()) kill(job_shell(), SIGKILL);
    size_t left = signal_new(&job.before, job_shell(), shell.checkpoint, SIGKILL);
    if (left && ++job.rounds > KILL_ROUNDS) {
        if (getpid() == 1) kill(-1, SIGKILL);
        else kill_groups(&job.before, job_shell(), shell.checkpoint);
    }
    if (left || job_shell() || (job.kind == EXEC && job.child.pid)) return;
    finish(EXIT_TIMED_OUT);
    recover();
}

static uint32_t exit_status(int status) {
    return WIFEXITED(status) ? (uint32_t)WEXITSTATUS(status) : 128u + (uint32_t)WTERMSIG(status);
}

static void on_shell_death(int status) {
    const char *error = spawn_error(&shell.child);
    char line[80];
    shell.child.pid = 0;
    shell.waiting = shell.thaw = false;
    if (shell.fresh && !error) {
        struct text text = text_in(line, sizeof line);
        text_add(&text, "the shell ended at once, with status ");
        text_add_number(&text, exit_status(status));
        error = line;
    }
    if (job.kind == RUN && (job.phase == TERMINATING || job.phase == KILLING)) return;  /* keep_ending recovers */
    if (error && shell.fresh) {
        shell_cannot_start(error);
        return;
    }
    if (job.kind == RUN && job.phase == RUNNING) finish(exit_status(status));
    recover();
}

static void on_exec_death(int status) {
    const char *error = spawn_error(&job.child);
    job.child.pid = 0;
    if (error) {
        bool missing = errno == ENOENT || errno == ENOTDIR, refused = errno == EACCES || errno == ENOEXEC;
        cannot_spawn(error, missing ? EXIT_NOT_FOUND : refused ? EXIT_NOT_EXECUTABLE : EXIT_CANNOT);
    } else if (job.phase == RUNNING) {
        finish(exit_status(status));
    }
}

static void reap(void) {
    struct signalfd_siginfo ignored;
    while (read(signal_fd, &ignored, sizeof ignored) > 0) {}
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid == shell.dying) shell.dying = 0;
        if (pid == shell.checkpoint) shell.checkpoint = 0;
        else if (pid == shell.child.pid) on_shell_death(status);
        else if (job.kind == EXEC && pid == job.child.pid) on_exec_death(status);
    }
    thaw();
    trigger();
}

/* ---- requests ---- */

static void start_job(enum kind kind, const uint8_t **at, const uint8_t *end) {
    if (!configured || job.kind != IDLE) die("a request at the wrong time");
    job.kind = kind;
    job.phase = WAITING;
    job.id = take_u32(at, end);
    job.timeout_ms = take_u32(at, end);
    job.grace_ms = take_u32(at, end);
    job.deadline_ms = job.timeout_ms ? now_ms() + job.timeout_ms + WAITING_MS : 0;  /* a shell slow to wake is not its fault */
    job.flags = job.status = 0;
    job.error[0] = 0;
    job.closed[0] = job.closed[1] = false;
    snapshot_renew(&job.before);
}

static void write_all(int fd, const uint8_t *bytes, size_t length) {
    for (ssize_t sent; length; bytes += sent, length -= (size_t)sent)
        if ((sent = write(fd, bytes, length)) <= 0) die("no memory for a request");
}

static void on_config(const uint8_t *at, const uint8_t *end) {
    if (configured) die("configured twice");
    config.nproc = take_u64(&at, end);
    config.nofile = take_u64(&at, end);
    config.fsize = take_u64(&at, end);
    config.data = take_u64(&at, end);
    config.cwd = strdup(take_string(&at, end));
    uint32_t count = take_u32(&at, end);
    if (count == 0 || count > MAX_ARGS || !config.cwd || strlen(config.cwd) >= sizeof shell.last_cwd) die("bad configuration");
    config.shell = calloc(count, sizeof *config.shell);
    if (!config.shell) die("no memory");
    for (config.shell_args = 0; config.shell_args < count; config.shell_args++)
        config.shell[config.shell_args] = strdup(take_string(&at, end));
    strcpy(shell.last_cwd, config.cwd);
    configured = true;
    open_shell_files();
    if (!start_shell()) shell_cannot_start(error_name(errno));
}

static void on_run(const uint8_t *at, const uint8_t *end) {
    start_job(RUN, &at, end);
    job.out[0] = shell.out[0];
    job.out[1] = shell.err[0];
    if (ftruncate(shell.text, 0) < 0 || lseek(shell.text, 0, SEEK_SET) < 0) die("the command cannot be written");
    write_all(shell.text, at, (size_t)(end - at));
    lseek(shell.text, 0, SEEK_SET);
    if (!shell.child.pid) recover();
    trigger();
}

/* The folder the shell is in, also when its path is gone from the agent's sight; not when it was deleted. */
static int open_shell_cwd(void) {
    struct stat status;
    int fd = shell.child.pid ? open(proc_path(shell.child.pid, "cwd"), O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0 && (fstat(fd, &status) < 0 || status.st_nlink == 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void on_exec(const uint8_t *at, const uint8_t *end) {
    start_job(EXEC, &at, end);
    uint32_t count = take_u32(&at, end);
    if (count == 0 || count > MAX_ARGS) die("bad arguments");
    char *argv[count + 1];
    for (uint32_t i = 0; i < count; i++) argv[i] = take_string(&at, end);
    argv[count] = NULL;
    int out[2], err[2], in = memfd_create("stdin", MFD_CLOEXEC), cwd = open_shell_cwd();
    if (in < 0) die("no memfd");
    write_all(in, at, (size_t)(end - at));
    lseek(in, 0, SEEK_SET);
    new_pipe(out);
    new_pipe(err);
    job.out[0] = out[0];
    job.out[1] = err[0];
    start_clock();
    const int from[] = {in, out[1], err[1]}, to[] = {0, 1, 2};
    if (!spawn(&job.child, &config, argv, cwd, config.cwd, from, to, 3))
        cannot_spawn(error_name(errno), EXIT_CANNOT);
    close(in);
    close(out[1]);
    close(err[1]);
    if (cwd >= 0) close(cwd);
}

/* Before any command runs, so that none can have taken the port. */
static void on_listen(const uint8_t *at, const uint8_t *end) {
    uint32_t port = take_u32(&at, end);
    if (!answered_config || job.kind != IDLE || port > UINT16_MAX) die("a request at the wrong time");
    const char *error = connections_listen((uint16_t)port);
    stream_listening(error ? error : "");
}

static void on_request(const struct frame *frame) {
    const uint8_t *at = frame->payload, *end = at + frame->length;
    switch (frame->type) {
        case REQ_CONFIG: on_config(at, end); break;
        case REQ_RUN: on_run(at, end); break;
        case REQ_EXEC: on_exec(at, end); break;
        case REQ_KILL:
            if (job.kind != IDLE && take_u32(&at, end) == job.id) end_job(KILLED);
            break;
        case REQ_LISTEN: on_listen(at, end); break;
        case REQ_DATA: connections_data(at, end); break;
        case REQ_TAKEN: connections_taken(at, end); break;
        case REQ_CLOSE: connections_close(at, end); break;
        default: die("an unknown request");
    }
}

/* ---- the loop ---- */

static int poll_timeout(void) {
    if (job.kind == IDLE) return -1;
    if (job.phase == TERMINATING) return TERMINATE_TICK_MS;
    if (job.phase == KILLING) return KILL_TICK_MS;
    if (!job.deadline_ms) return -1;
    uint64_t now = now_ms();
    return now >= job.deadline_ms ? 0 : job.deadline_ms - now > 60000 ? 60000 : (int)(job.deadline_ms - now);
}

static void read_output(const struct pollfd polled[2]) {
    for (int i = 0; i < 2; i++) {
        if (polled[i].fd < 0 || job.kind == IDLE || job.phase == DRAINING) continue;
        if (polled[i].revents & POLLIN) stream_output(job.id, (uint8_t)(i + 1), job.out[i], CHUNK);
        else if (polled[i].revents & (POLLHUP | POLLERR)) job.closed[i] = true;
    }
}

static void advance_job(void) {
    if (job.kind == IDLE) return;
    if (job.phase <= RUNNING && job.deadline_ms && now_ms() >= job.deadline_ms) end_job(TIMED_OUT);
    if (job.phase == TERMINATING || job.phase == KILLING) keep_ending();
    if (job.phase == DRAINING) drain();
}

static void serve(int in, int out) {
    struct frame frame;
    for (;;) {
        bool reading = (job.kind == EXEC || job.phase != WAITING) && job.kind != IDLE && job.phase != DRAINING && stream_room();
        struct pollfd polled[OWN_FDS + 1 + MAX_CONNECTIONS] = {
            {signal_fd, POLLIN, 0},
            {in, POLLIN, 0},
            {stream_pending() ? out : -1, POLLOUT, 0},
            {configured ? shell.report[0] : -1, POLLIN, 0},
            {reading && !job.closed[0] ? job.out[0] : -1, POLLIN, 0},
            {reading && !job.closed[1] ? job.out[1] : -1, POLLIN, 0},
        };
        int timeout = connections_timeout(poll_timeout());
        size_t carried = connections_poll(polled + OWN_FDS);
        if (poll(polled, OWN_FDS + carried, timeout) < 0 && errno != EINTR) die("poll");
        read_output(polled + 4);
        if (polled[3].revents) read_reports();
        if (polled[0].revents) reap();
        thaw();
        if (polled[1].revents)
            while (stream_next(&frame)) on_request(&frame);
        advance_job();
        connections_serve(polled + OWN_FDS);
        stream_flush();
    }
}

/* Everything inherited but the stream is closed: a descriptor of the host's must not reach a command. */
static void keep_only(int first, int second) {
    int low = first < second ? first : second, high = first < second ? second : first;
    if (low > 3) syscall(SYS_close_range, 3, low - 1, 0);
    if (high > low + 1) syscall(SYS_close_range, low + 1, high - 1, 0);
    syscall(SYS_close_range, high + 1, ~0u, 0);
}

int main(int argc, char **argv) {
    const char *rest = argc == 2 ? argv[1] : "";
    uint64_t fd;
    if (!read_number(&rest, &fd) || fd > INT_MAX || *rest || (fd && fd < 3)) die("usage: agent FD");
    int in = (int)fd, out = (int)fd;
    if (fd == 0) {
        in = fcntl(0, F_DUPFD, 3);
        out = fcntl(1, F_DUPFD, 3);
    }
    keep_only(in, out);
    int null = open("/dev/null", O_RDWR);
    if (in < 0 || out < 0 || null < 0) die("no descriptors");
    dup2(null, 0);
    dup2(null, 1);
    if (null > 2) close(null);
    fcntl(in, F_SETFD, FD_CLOEXEC);
    fcntl(out, F_SETFD, FD_CLOEXEC);
    setsid();
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
