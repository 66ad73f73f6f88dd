/* Children: their limits, descriptors and folder, and why one could not be started. */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* LEAST_FILES: what the shell's own descriptors need. */
enum { OUT_OF_THE_WAY = 100, LEAST_FILES = 64, FEW_FILES = 1024, CAPABILITIES_3 = 0x20080522 };

struct failure { int error; char stage[60]; };  /* no error: the shell that comes can be read */

static _Noreturn void fail(int status_fd, const char *stage) {
    struct failure failure = {.error = errno};
    struct text text = text_in(failure.stage, sizeof failure.stage);
    text_add(&text, stage);
    if (write(status_fd, &failure, sizeof failure) < 0) _exit(125);
    _exit(127);
}

/* A hard limit that is already stricter stays: raising it needs a right that nobody here should have. */
static bool limit(int resource, uint64_t value) {
    struct rlimit now;
    if (getrlimit(resource, &now) < 0) return false;
    if (value < now.rlim_max) now.rlim_max = value;
    now.rlim_cur = now.rlim_max;
    return setrlimit(resource, &now) == 0;
}

static void set_limits(const struct config *config, int status_fd) {
    uint64_t files = config->nofile && config->nofile < LEAST_FILES ? LEAST_FILES : config->nofile;
    if (!limit(RLIMIT_CORE, 0)) fail(status_fd, "the limit on core files cannot be set");
    if (config->fsize && !limit(RLIMIT_FSIZE, config->fsize)) fail(status_fd, "the limit on file size cannot be set");
    if (config->data && !limit(RLIMIT_DATA, config->data)) fail(status_fd, "the limit on memory cannot be set");
    if (config->nproc && !limit(RLIMIT_NPROC, config->nproc)) fail(status_fd, "the limit on processes cannot be set");
    if (files && !limit(RLIMIT_NOFILE, files)) fail(status_fd, "the limit on open files cannot be set");
}

static void reset_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The sandbox's user, for good and without any right. */
static void drop_rights(uid_t user, int status_fd) {
    struct { uint32_t version; int pid; } header = {CAPABILITIES_3, 0};
    uint32_t none[6] = {0};
    for (int number = 0; prctl(PR_CAPBSET_READ, number) >= 0; number++)
        if (prctl(PR_CAPBSET_DROP, number) < 0) fail(status_fd, "rights");
    if (setgroups(0, NULL) < 0 || setresgid(user, user, user) < 0 || setresuid(user, user, user) < 0) fail(status_fd, "the user");
    if (syscall(SYS_capset, &header, none) < 0) fail(status_fd, "rights");
}

static _Noreturn void become(const struct config *config, char *const argv[], int cwd_fd, const char *cwd,
                             const int from[], const int to[], size_t count, int status_fd, struct start how) {
    int parked[16];
    status_fd = fcntl(status_fd, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
    for (size_t i = 0; i < count; i++) {
        parked[i] = fcntl(from[i], F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
        if (parked[i] < 0) fail(status_fd, "descriptors");
    }
    for (size_t i = 0; i < count; i++)
        if (dup2(parked[i], to[i]) < 0) fail(status_fd, "descriptors");
    if (how.terminal && (setsid() < 0 || ioctl(0, TIOCSCTTY, 0) < 0)) fail(status_fd, "the terminal");
    if (!how.terminal) setpgid(0, 0);
    if (config->user && how.terminal && !how.root && fchown(0, config->user, config->user) < 0) fail(status_fd, "the terminal");
    if (config->user && !how.root) drop_rights(config->user, status_fd);
    if (how.root && geteuid()) {
        errno = EPERM;
        fail(status_fd, "root");
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((cwd_fd < 0 || fchdir(cwd_fd) < 0) && chdir(cwd) < 0) fail(status_fd, cwd);
    set_limits(config, status_fd);
    reset_signals();
    bool is_shell = argv[0] == config->shell[0];
    if (is_shell && config->shell_fd >= 0) fexecve(config->shell_fd, argv, environ);
    if (is_shell && config->shell_fd >= 0 && errno != EACCES) fail(status_fd, argv[0]);
    struct failure readable = {0};  /* gVisor wants to read what it runs */
    if (is_shell && write(status_fd, &readable, sizeof readable) < 0) _exit(125);
    execvp(argv[0], argv);
    fail(status_fd, argv[0]);
}

/* A program's parent: it adopts whom the program leaves, so that they can be told from everybody else's, and ends with the
 * program, with its status. It keeps no descriptor, or others would never see the end of theirs. */
static _Noreturn void hold(pid_t program) {
    int status;
    if (syscall(SYS_close_range, 0, ~0u, 0) < 0)
        for (int fd = 0; fd < FEW_FILES; fd++) close(fd);
    for (pid_t pid; (pid = waitpid(-1, &status, 0)) > 0 || errno == EINTR;)
        if (pid == program) _exit((int)exit_status(status));
    _exit(EXIT_CANNOT);
}

bool spawn(struct child *child, const struct config *config, char *const argv[], int cwd_fd, const char *cwd,
           const int from[], const int to[], size_t count, struct start how) {
    int status[2];
    if (pipe2(status, O_CLOEXEC | O_NONBLOCK) < 0) return false;
    child->pid = fork();
    if (child->pid == 0 && how.held) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        pid_t program = fork();
        if (program < 0) fail(status[1], argv[0]);
        if (program > 0) hold(program);
    }
    if (child->pid == 0) become(config, argv, cwd_fd, cwd, from, to, count, status[1], how);
    close(status[1]);
    child->status_fd = status[0];
    if (child->pid > 0) return true;
    close(status[0]);
    return false;
}

const char *spawn_error(struct child *child) {
    static char buffer[160];
    struct failure failure = {0};
    while (child->status_fd >= 0 && read(child->status_fd, &failure, sizeof failure) == sizeof failure) {}
    if (child->status_fd >= 0) close(child->status_fd);
    child->status_fd = -1;
    if (!failure.error) return NULL;
    failure.stage[sizeof failure.stage - 1] = 0;
    struct text text = text_in(buffer, sizeof buffer);
    text_add(&text, failure.stage);
    text_add(&text, ": ");
    text_add(&text, error_name(failure.error));
    errno = failure.error;
    return buffer;
}

bool spawn_readable(struct child *child) {
    struct failure failure;
    bool said = child->status_fd >= 0 && read(child->status_fd, &failure, sizeof failure) == sizeof failure;
    if (child->status_fd >= 0) close(child->status_fd);
    child->status_fd = -1;
    return said;
}
