/* The persistent shell: started, told, watched, and brought back from its checkpoint. driver.bash is what it runs. */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define DRIVER_FILE "driver.bash"
__asm__(".section .rodata\n.global driver\ndriver: .incbin \"" DRIVER_FILE "\"\n.byte 0\n"
        ".section .note.GNU-stack,\"\",@progbits\n.text");
extern char driver[];

enum { HURRY_MS = 50, OUT_OF_THE_WAY = 100, MFD_EXECUTABLE = 0x10 };

struct shell shell = {.child = {.status_fd = -1}};

/* Nobody else reads now; the read end stays blocking because the shell shares it. */
static void drain_trigger(int which) {
    char rest[64];
    for (int left; (left = bytes_in(shell.trigger[which][0])) > 0;)
        if (read(shell.trigger[which][0], rest, left < 64 ? (size_t)left : 64) <= 0) return;
}

/* As the shell said it with its last report, without links. */
const char *shell_cwd(void) {
    static char said[PATH_MAX + 1];
    ssize_t length = pread(shell.folder, said, sizeof said, 0) - 1;
    if (length <= 0 || *said != '/' || said[length] != '\n') return shell.last_cwd;
    said[length] = 0;
    strcpy(shell.last_cwd, said);
    int fd = open(said, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return shell.last_cwd;
    char name[24];
    struct text text = text_in(name, sizeof name);
    text_add(&text, "fd/");
    text_add_number(&text, (uint64_t)fd);
    length = readlink(proc_path(getpid(), name), said, sizeof said - 1);
    close(fd);
    if (length <= 0 || length == sizeof said - 1) return shell.last_cwd;
    said[length] = 0;
    return strcpy(shell.last_cwd, said);
}

/* A copy of the shell that nobody may read: the kernel then lets nobody else at its memory and descriptors, see
 * would_dump() and ptrace(2). -1: it is no file that we can read, and execvp says why, or a script. */
static int unreadable(const char *name) {
    char path[PATH_MAX], magic[2];
    const char *folders = getenv("PATH");
    int file = -1;
    if (strchr(name, '/')) file = open(name, O_RDONLY | O_CLOEXEC);
    else for (const char *at = folders ? folders : "/usr/local/bin:/bin:/usr/bin"; file < 0 && *at;) {
        size_t length = strcspn(at, ":");
        struct text text = text_in(path, sizeof path);
        if (length + strlen(name) + 2 < sizeof path) {
            memcpy(path, at, length);
            path[length] = 0;
            text.at += length;
            text_add(&text, "/");
            text_add(&text, name);
            if (access(path, X_OK) == 0) file = open(path, O_RDONLY | O_CLOEXEC);
        }
        at += length + (at[length] == ':');
    }
    if (file < 0) return -1;
    int copy = -1;
    if (pread(file, magic, 2, 0) == 2 && memcmp(magic, "#!", 2) != 0) {
        int first = memfd_create("bash", MFD_CLOEXEC | MFD_EXECUTABLE);
        if (first < 0) first = memfd_create("bash", MFD_CLOEXEC);  /* before Linux 6.3 */
        ssize_t sent;
        while ((sent = sendfile(first, file, NULL, 1 << 30)) > 0) {}
        copy = fcntl(first, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
        close(first);
        if (sent < 0 || copy < 0 || fchmod(copy, 0111) < 0) die("the shell cannot be copied");
    }
    close(file);
    return copy;
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
    shell.fresh = shell.pristine = true;
    shell.waiting = shell.stale = false;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return false;
    const int from[] = {null, shell.out[1], shell.err[1], shell.text, shell.trigger[0][0], shell.trigger[1][0],
                        shell.report[1], shell.out[1], shell.err[1], shell.exports, shell.folder};
    const int to[] = {0, 1, 2, 50, 51, 52, 53, 54, 55, 56, 57};
    int cwd = open(shell.last_cwd, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool started = spawn(&shell.child, &config, argv, cwd, config.cwd, from, to, sizeof to / sizeof *to, (struct start){0});
    close(null);
    if (cwd >= 0) close(cwd);
    return started;
}

static void answer_config(const char *error, uint32_t flags) {
    if (!shell.answered) stream_done(0, error ? EXIT_CANNOT : 0, error ? SPAWN_FAILED : flags, shell_cwd(), error ? error : "");
    shell.answered = true;
}

static void shell_cannot_start(const char *error) {
    answer_config(error, 0);
    if (job.active) job_cannot_spawn(error);
}

void shell_open(void) {
    shell.text = memfd_create("command", MFD_CLOEXEC);
    shell.exports = memfd_create("exports", MFD_CLOEXEC);
    shell.folder = memfd_create("folder", MFD_CLOEXEC);
    if (shell.text < 0 || shell.exports < 0 || shell.folder < 0) die("no memfd");
    if (config.shell_fd < 0) config.shell_fd = unreadable(config.shell[0]);
    for (int i = 0; i < 2; i++)
        if (pipe2(shell.trigger[i], O_CLOEXEC) < 0) die("no pipe");
    new_pipe(shell.report);
    new_pipe(shell.out);
    shell.err[0] = -1;
    shell.err[1] = shell.out[1];
    if (config.streams == 2) new_pipe(shell.err);
    if (!start_shell()) shell_cannot_start(error_name(errno));
}

/* The descriptors of ours and the shell's share one place in the file. */
void shell_forget_exports(void) {
    if (ftruncate(shell.exports, 0) < 0 || lseek(shell.exports, 0, SEEK_SET) < 0) die("the exports cannot be emptied");
    if (ftruncate(shell.folder, 0) < 0 || lseek(shell.folder, 0, SEEK_SET) < 0) die("the folder cannot be emptied");
}

void shell_tell_exports(void) {
    static char texts[2][MAX_EXPORTS];
    static ssize_t told = -1;
    static int last;
    struct stat status;
    if (fstat(shell.exports, &status) < 0 || status.st_size > MAX_EXPORTS) return;
    ssize_t length = pread(shell.exports, texts[!last], MAX_EXPORTS, 0);
    if (length <= 0 || (length == told && memcmp(texts[0], texts[1], (size_t)length) == 0)) return;
    last = !last;
    told = length;
    stream_exports(texts[last], (size_t)length);
}

/* Not before the older checkpoint is gone, which reads the same pipe. */
void shell_thaw(void) {
    if (!shell.thaw || shell.dying) return;
    shell.thaw = false;
    drain_trigger(shell.in);
    shell.in = !shell.in;
    if (write(shell.trigger[shell.in][1], "go\n", 3) != 3) die("the checkpoint cannot be woken");
}

/* A new shell for one that is gone: the checkpoint, else a fresh one, which is the same where nothing was run yet. */
void shell_recover(void) {
    if (shell.child.pid) return;
    shell_forget_exports();
    if (shell.checkpoint && descends(shell.checkpoint, getpid())) {
        shell.flags |= SHELL_RESTORED;
        shell.child = (struct child){.pid = shell.checkpoint, .status_fd = -1};
        shell.checkpoint = 0;
        shell.thaw = true;
        shell.fresh = false;
        shell_thaw();
    } else {
        if (shell.pristine) shell.flags |= SHELL_RESTORED;
        else shell.flags = (shell.flags & ~(uint32_t)SHELL_RESTORED) | SHELL_RESTARTED;
        shell.checkpoint = 0;
        if (!start_shell()) shell_cannot_start(error_name(errno));
    }
}

void shell_trigger(void) {
    if (!job.active || job.phase != WAITING || !shell.waiting) return;
    char line[16];
    struct text text = text_in(line, sizeof line);
    text_add_number(&text, job.id);
    text_add(&text, "\n");
    if (write(shell.trigger[shell.in][1], line, strlen(line)) < 0) die("the shell cannot be told");
    job_start_clock();
}

static void drop_checkpoint(void) {
    if (!shell.checkpoint) return;
    kill(shell.checkpoint, SIGKILL);
    shell.dying = shell.checkpoint;
    shell.checkpoint = 0;
}

static void on_checkpoint(pid_t pid, pid_t of) {
    pid_t self = getpid();
    if (pid <= 1 || pid == self || pid == shell.child.pid || pid == shell.checkpoint || !descends(pid, self)) return;
    if (of != shell.child.pid) {  /* of a shell that is gone */
        kill(pid, SIGKILL);
        return;
    }
    drop_checkpoint();
    shell.checkpoint = pid;
    shell.stale = false;
}

static void shell_ran(void) {
    shell.pristine = false;
    shell.stale = true;
    shell.ran_ms = now_ms();
}

/* Between two commands, for longer than a fork takes. */
static bool held_up(void) {
    bool between = !job.active || job.phase == WAITING || job.phase == DRAINING;
    return between && shell.child.pid && !shell.waiting && !shell.fresh && !shell.thaw;
}

int shell_timeout(int otherwise) {
    return held_up() && (otherwise < 0 || otherwise > HURRY_MS) ? HURRY_MS : otherwise;
}

/* Near the limit of processes bash tries to fork for 15 s, asleep between tries: the shell, or its last child. A signal
 * that bash handles ends that. */
void shell_hurry(void) {
    if (!held_up() || now_ms() < shell.ran_ms + HURRY_MS) return;
    kill(shell.child.pid, SIGCHLD);
    pid_t last = youngest_child(shell.child.pid);
    if (last) kill(last, SIGCHLD);
}

/* While a command runs its end is all that the shell has to tell, and while it waits nothing: the rest was written by
 * what a command left or forked of it. */
static bool in_turn(const char *line) {
    uint64_t id, status;
    if (job.active && job.phase == ENDING) return true;
    if (!job.active || job.phase != RUNNING) return !shell.waiting;
    return *line++ == 'D' && read_number(&line, &id) && read_number(&line, &status) && id == job.id;
}

/* One line of the shell's report. A command can forge the one of its end, and would only fool itself. */
static void on_report(const char *line) {
    uint64_t id, status;
    if (!in_turn(line)) {
        shell.flags |= OUT_OF_TURN;
        if (shell.child.pid) kill(shell.child.pid, SIGKILL);
        return;
    }
    char kind = *line++;
    if (kind == 'D' && read_number(&line, &id) && read_number(&line, &status)) {
        if (!job.active || job.phase != RUNNING) return;
        shell.waiting = strcmp(line, " s") == 0;
        if (shell.waiting) job.flags |= SYNTAX;
        else shell_ran();
        job_finish(status & 255);
    } else if (kind == 'K' && read_number(&line, &id) && read_number(&line, &status)) {
        if (id < INT_MAX && status < INT_MAX) on_checkpoint((pid_t)id, (pid_t)status);
    } else if (kind == 'N' && !*line) {
        shell.waiting = true;
        shell.fresh = false;
        if (shell.stale) drop_checkpoint();  /* there was no process left for a newer one */
        /* `kill 0` must not reach it. The process between is gone by now, so a living checkpoint is our child. */
        if (shell.checkpoint && setpgid(shell.checkpoint, shell.checkpoint) < 0) shell.checkpoint = 0;
        answer_config(NULL, spawn_readable(&shell.child) ? READABLE : 0);
        shell_trigger();
        if (!job.active) snapshot_take(&job.before);  /* while the host thinks */
    }
}

void shell_read_reports(void) {
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

void shell_died(int status) {
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
    if (job.active && job.phase == ENDING) return;  /* keep_ending recovers */
    if (error && shell.fresh) {
        shell_cannot_start(error);
        return;
    }
    if (job.active && job.phase == RUNNING) job_finish(exit_status(status));
    shell_recover();
}

/* The folder the shell is in, also when its path is gone from the agent's sight; not when it was deleted. */
int shell_open_cwd(void) {
    struct stat status;
    int fd = shell.child.pid ? open(shell_cwd(), O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0 && (fstat(fd, &status) < 0 || status.st_nlink == 0)) {
        close(fd);
        return -1;
    }
    return fd;
}
