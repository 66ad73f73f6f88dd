/* Programs beside the shell, any number at once. Their streams are connections (connections.c): one for standard input and
 * output, whose number is the program's, and the next for standard error. */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SHELL_FD = 3 };
static char self[] = "/proc/self/exe";

static struct program {
    uint32_t number;             /* 0: a free place */
    struct child child;          /* its holder (spawn.c); pid 0: it has ended */
    enum phase phase;
    struct ending ending;
    uint32_t grace_ms, status, flags, terminal;  /* its size; 0: it has pipes */
    bool root;
    uint64_t started_ms, deadline_ms;
    char error[200];             /* why it never ran */
} programs[MAX_PROGRAMS];

bool programs_hold(pid_t pid) {
    for (size_t i = 0; i < MAX_PROGRAMS; i++)
        if (programs[i].number && programs[i].child.pid == pid) return true;
    return false;
}

/* `ours` is which of its ends is the agent's. */
static bool open_pipe(int ends[2], int ours) {
    return pipe2(ends, O_CLOEXEC) == 0 && fcntl(ends[ours], F_SETFL, O_NONBLOCK) == 0;
}

/* As two pipes: the program's ends are its side of a new pseudo terminal, ours the other. */
static bool open_terminal(uint32_t size, int in[2], int out[2]) {
    struct winsize window = {.ws_row = (unsigned short)(size >> 16), .ws_col = (unsigned short)(size & 0xffff)};
    char path[32];
    struct text text = text_in(path, sizeof path);
    int number, unlocked = 0;
    out[0] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (out[0] < 0 || ioctl(out[0], TIOCSPTLCK, &unlocked) < 0 || ioctl(out[0], TIOCGPTN, &number) < 0) return false;
    text_add(&text, "/dev/pts/");
    text_add_number(&text, (uint64_t)number);
    if ((in[0] = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0) return false;
    ioctl(in[0], TIOCSWINSZ, &window);
    in[1] = fcntl(out[0], F_DUPFD_CLOEXEC, 0);
    out[1] = fcntl(in[0], F_DUPFD_CLOEXEC, 0);
    return in[1] >= 0 && out[1] >= 0;
}

static void close_all(const int fds[], size_t count) {
    for (size_t i = 0; i < count; i++)
        if (fds[i] >= 0) close(fds[i]);
}

static void is_over(struct program *one, uint32_t status, uint32_t flags, const char *error) {
    struct text text = text_in(one->error, sizeof one->error);
    text_add(&text, error ? error : "");
    one->child.pid = 0;
    one->phase = DRAINING;
    one->status = status;
    one->flags |= flags;
    connections_last(one->number);
    connections_last(one->number + 1);
}

/* In the folder `cwd`; none: where the shell is. */
static void start(struct program *one, char *const argv[], const char *cwd) {
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, folder = *cwd ? -1 : shell_open_cwd();
    bool ready = one->terminal ? open_terminal(one->terminal, in, out) : open_pipe(in, 1) && open_pipe(out, 0) && open_pipe(err, 0);
    const int from[] = {in[0], out[1], one->terminal ? out[1] : err[1], config.shell_fd}, to[] = {0, 1, 2, SHELL_FD};
    const struct start how = {.held = true, .terminal = one->terminal, .root = one->root};
    size_t count = config.user && argv[0] == self ? 4 : 3;
    ready = ready && spawn(&one->child, &config, argv, folder, *cwd ? cwd : config.cwd, from, to, count, how);
    int error = errno;
    connections_adopt(one->number, out[0], in[1], one->terminal);
    connections_adopt(one->number + 1, err[0], -1, false);
    errno = error;
    if (!ready) is_over(one, EXIT_CANNOT, SPAWN_FAILED, error_name(errno));
    close_all((const int[]){in[0], out[1], err[1], folder}, 4);
}

void programs_start(const uint8_t *at, const uint8_t *end) {
    struct program *one = programs, started = {.number = take_u32(&at, end), .child = {.status_fd = -1}, .phase = RUNNING};
    uint32_t timeout_ms = take_u32(&at, end);
    started.grace_ms = take_u32(&at, end);
    started.terminal = take_u32(&at, end);
    started.root = take_u32(&at, end);
    const char *cwd = take_string(&at, end);
    uint32_t count = take_u32(&at, end);
    if (count > MAX_ARGS) die("bad arguments");
    char *argv[count + 4];
    for (uint32_t i = 0; i < count; i++) argv[i] = take_string(&at, end);
    argv[count] = NULL;
    if (!count) memcpy(argv, (char *[]){self, "0", config.user ? "3" : NULL, NULL}, 4 * sizeof *argv);  /* one like us */
    while (one < programs + MAX_PROGRAMS && one->number) one++;
    if (one == programs + MAX_PROGRAMS) die("too many programs");
    started.started_ms = now_ms();
    started.deadline_ms = timeout_ms ? started.started_ms + timeout_ms : 0;
    *one = started;
    start(one, argv, cwd);
}

/* The holder is stopped first, so that it adopts to the last. */
static void end_program(struct program *one, uint32_t why) {
    if (one->phase != RUNNING) return;
    kill(one->child.pid, SIGSTOP);
    one->phase = ENDING;
    one->flags |= why;
    one->status = EXIT_TIMED_OUT;
}

void programs_kill(uint32_t number) {
    for (size_t i = 0; number && i < MAX_PROGRAMS; i++)
        if (programs[i].number == number) end_program(&programs[i], KILLED);
}

/* Whom a terminal would signal; else the process group that it was started as. */
static void send_signal(uint32_t number, uint32_t signal) {
    for (size_t i = 0; i < MAX_PROGRAMS; i++) {
        if (programs[i].number != number || programs[i].phase != RUNNING) continue;
        pid_t group = connections_foreground(number), program;
        if (group && kill(-group, (int)signal) == 0) continue;
        if ((program = oldest_child(programs[i].child.pid)) && kill(-program, (int)signal) < 0) kill(program, (int)signal);
    }
}

void programs_signal(const uint8_t *at, const uint8_t *end) {
    uint32_t number = take_u32(&at, end), signal = take_u32(&at, end);
    if (!number || !signal || signal >= NSIG) die("no such signal");
    send_signal(number, signal);
}

/* gVisor's kernel tells nobody of the new size. */
void programs_resize(const uint8_t *at, const uint8_t *end) {
    uint32_t number = take_u32(&at, end);
    if (connections_resize(number, take_u32(&at, end))) send_signal(number, SIGWINCH);
}

void programs_died(pid_t pid, int status) {
    for (size_t i = 0; i < MAX_PROGRAMS; i++) {
        struct program *one = &programs[i];
        if (!one->number || one->child.pid != pid) continue;
        const char *error = spawn_error(&one->child);
        uint32_t said = !error ? exit_status(status) : errno == ENOENT || errno == ENOTDIR ? EXIT_NOT_FOUND
                      : errno == EACCES || errno == ENOEXEC ? EXIT_NOT_EXECUTABLE : EXIT_CANNOT;
        is_over(one, one->phase == ENDING ? one->status : said, error ? SPAWN_FAILED : 0, error);
    }
}

/* Output of one that ends at once goes out together with its end, so that the host wakes up once. */
bool programs_are_young(void) {
    size_t young = 0, there = 0;
    for (size_t i = 0; i < MAX_PROGRAMS; i++) {
        there += programs[i].number != 0;
        young += programs[i].number && programs[i].child.pid && now_ms() < programs[i].started_ms + HOLD_MS;
    }
    return there == 1 && young == 1 && !job.active;
}

/* The host learns of an end after all that was written before it. */
static void advance(struct program *one) {
    if (one->phase == RUNNING && one->deadline_ms && now_ms() >= one->deadline_ms) end_program(one, TIMED_OUT);
    struct scope scope = {.holder = one->child.pid};
    if (one->phase == ENDING && one->child.pid && end_all(&scope, &one->ending, one->grace_ms)) kill(one->child.pid, SIGKILL);
    if (one->phase != DRAINING || !stream_room()) return;
    if (connections_unread(one->number) || connections_unread(one->number + 1)) return;
    stream_ended(one->number, one->status, one->flags, one->error);
    connections_drop(one->number);
    connections_drop(one->number + 1);
    one->number = 0;
}

void programs_advance(void) {
    for (size_t i = 0; i < MAX_PROGRAMS; i++)
        if (programs[i].number) advance(&programs[i]);
}

int programs_timeout(int otherwise) {
    for (size_t i = 0; i < MAX_PROGRAMS; i++) {
        const struct program *one = &programs[i];
        if (!one->number || one->phase == DRAINING) continue;
        int mine = one->phase == ENDING ? end_timeout(&one->ending) : ms_until(one->deadline_ms);
        if (mine >= 0 && (otherwise < 0 || mine < otherwise)) otherwise = mine;
    }
    bool held = stream_pending() && stream_room() && programs_are_young();
    return held && (otherwise < 0 || otherwise > 1) ? 1 : otherwise;
}
