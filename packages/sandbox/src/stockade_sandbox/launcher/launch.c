/* launch: prepares mounts and ids for bubblewrap, then becomes it.
 *
 * It runs the operations of its argument list in order and nothing else; the list is made by launch.py. Each operation
 * has a fixed number of arguments. The first that fails prints one line, "launch: OP ARG: reason", to stderr and ends the
 * process with status 125. Nothing is read from the environment, and the last operation, `exec`, starts with an empty one
 * unless `keep` was said.
 *
 * Why a program of our own: Debian's bubblewrap 0.8 cannot mount overlays, a folder of root must be made usable by a uid
 * without rights (an idmapped mount), and none of this may run between fork and exec of a threaded Python.
 */
#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Not in every libc's headers; numbers are the same on all architectures since Linux 5.1. */
enum { NR_clone3 = 435, NR_close_range = 436 };
enum { MAX_FILTER = 4096, FILTERED = 2 };
#define INTO_CGROUP 0x200000000ULL

struct clone_arguments { /* clone(2), as of Linux 5.7 */
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

struct instruction { uint16_t code; uint8_t yes, no; uint32_t value; }; /* the kernel's sock_filter */
struct program { unsigned short length; struct instruction *start; };     /* and sock_fprog */

static volatile pid_t ward;
static int lifeline = -1;
static int group = -1;
static char *nothing[] = {NULL};
static char **environment = nothing;

void fail(const char *op, const char *arg) {
    dprintf(2, "launch: %s %s: %s\n", op, arg, strerror(errno));
    _exit(STATUS);
}

void check(int bad, const char *op, const char *arg) {
    if (bad) fail(op, arg);
}

unsigned long number(const char *text) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || end == text || *end) {
        errno = EINVAL;
        fail("number", text);
    }
    return value;
}

/* As open(2); musl's sets FD_CLOEXEC once more, which costs a file copied a tenth. */
int open_file(const char *path, int flags, mode_t mode) {
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode);
}

void write_file(const char *op, const char *path, const char *text, size_t length, int flags, mode_t mode) {
    int fd = open_file(path, O_WRONLY | O_NOFOLLOW | flags, mode);
    check(fd < 0, op, path);
    while (length) {
        ssize_t written = write(fd, text, length);
        check(written <= 0, op, path);
        text += written;
        length -= (size_t)written;
    }
    check(close(fd), op, path);
}

void write_text(const char *op, const char *path, const char *text) {
    write_file(op, path, text, strlen(text), 0, 0);
}

/* parent PID: end when that process is no longer our parent. */
static void op_parent(char **args) {
    int orphan = (unsigned long)getppid() != number(args[0]);
    errno = ESRCH;
    check(orphan, "parent", args[0]);
}

/* cgroup DIR: join a control group. The usual way, cgroup.procs, waits for an RCU grace period, 8 to 16 ms: a single
 * thread that moves itself (v1) and a child that is born in its group (v2, in `pidns`) need not wait. */
static void op_cgroup(char **args) {
    char path[4096];
    snprintf(path, sizeof path, "%s/tasks", args[0]);
    if (access(path, F_OK) == 0) {
        write_text("cgroup", path, "0");
        return;
    }
    group = open(args[0], O_PATH | O_DIRECTORY | O_CLOEXEC);
    check(group < 0, "cgroup", args[0]);
}

/* userns: a user namespace in which only our own ids exist. */
static void op_userns(char **args) {
    (void)args;
    char map[64];
    unsigned uid = getuid(), gid = getgid();
    check(unshare(CLONE_NEWUSER), "userns", "unshare");
    write_text("userns", "/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1\n", uid, uid);
    write_text("userns", "/proc/self/uid_map", map);
    snprintf(map, sizeof map, "%u %u 1\n", gid, gid);
    write_text("userns", "/proc/self/gid_map", map);
}

static void become(const char *op, uid_t uid, gid_t gid) {
    check(setgroups(0, NULL), op, "setgroups");
    check(setresgid(gid, gid, gid), op, "setresgid");
    check(setresuid(uid, uid, uid), op, "setresuid");
}

/* ids UID GID: become that user, with no other groups and no way back. */
static void op_ids(char **args) {
    become("ids", (uid_t)number(args[0]), (gid_t)number(args[1]));
}

/* A process of ours that stays in the user namespace that we leave: when told, it writes the maps of the new one. */
static pid_t fork_mapper(const char *op, int told[2], char **args, void (*map)(pid_t pid, char **args)) {
    pid_t self = getpid();
    check(pipe2(told, O_CLOEXEC), op, "pipe");
    pid_t mapper = fork();
    check(mapper < 0, op, "fork");
    if (mapper > 0) return mapper;
    close(told[1]);
    if (read(told[0], &(char){0}, 1) != 1) _exit(STATUS);
    map(self, args);
    _exit(0);
}

/* As root of a new user namespace, whose maps the mapper has written. */
static void enter_as_root(const char *op, int told[2], pid_t mapper) {
    int status;
    check(unshare(CLONE_NEWUSER), op, "unshare");
    check(write(told[1], "", 1) != 1, op, "pipe");
    close(told[0]);
    close(told[1]);
    check(waitpid(mapper, &status, 0) != mapper, op, "wait");
    if (status) _exit(STATUS); /* it has said why */
    become(op, 0, 0);
}

static void run_to_its_end(const char *program, pid_t pid, char *words) {
    char target[16], *argv[16] = {(char *)program, target};
    int count = 2, status;
    snprintf(target, sizeof target, "%d", pid);
    for (char *word = strtok(words, " "); word && count < 15; word = strtok(NULL, " ")) argv[count++] = word;
    pid_t child = fork();
    check(child < 0, "subids", "fork");
    if (child == 0) {
        execve(program, argv, nothing);
        fail("subids", program);
    }
    check(waitpid(child, &status, 0) != child, "subids", "wait");
    errno = EPERM;
    check(status, "subids", program);
}

static void map_by_programs(pid_t pid, char **args) {
    run_to_its_end(args[0], pid, args[2]);
    run_to_its_end(args[1], pid, args[3]);
}

/* subids NEWUIDMAP NEWGIDMAP UID_MAP GID_MAP: root of a user namespace of our own id and those of subuid(5), by
 * newuidmap(1). */
static void op_subids(char **args) {
    int told[2];
    pid_t mapper = fork_mapper("subids", told, args, map_by_programs);
    enter_as_root("subids", told, mapper);
}

static void map_directly(pid_t pid, char **args) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
    write_text("users", path, args[2]);
    snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
    write_text("users", path, args[2]);
}

/* users UID PROCESSES MAP: root of a user namespace with that map of users and of groups, in which nobody can make a
 * further one. It belongs to UID, who has at most so many processes (0: any number) under all the ids of it together. */
static void op_users(char **args) {
    struct rlimit most = {number(args[1]), number(args[1])};
    uid_t uid = (uid_t)number(args[0]);
    int told[2];
    pid_t mapper = fork_mapper("users", told, args, map_directly);
    check(most.rlim_cur && setrlimit(RLIMIT_NPROC, &most), "users", args[1]);
    become("users", uid, uid);
    check(prctl(PR_SET_DUMPABLE, 1), "users", "prctl"); /* or the maps would belong to root of all */
    enter_as_root("users", told, mapper);
    write_text("users", "/proc/sys/user/max_user_namespaces", "0");
}

/* chown PATH UID: and its group. */
static void op_chown(char **args) {
    uid_t uid = (uid_t)number(args[1]);
    check(chown(args[0], uid, uid), "chown", args[0]);
}

/* fds LIST: the descriptors of the comma-separated list become 3, 4, ...; all others are closed. */
static void op_fds(char **args) {
    int next = FIRST_FD;
    int high[16], count = 0;
    for (char *part = strtok(args[0], ","); part && count < 16; part = strtok(NULL, ",")) {
        high[count] = fcntl((int)number(part), F_DUPFD_CLOEXEC, HIGH_FD);
        check(high[count] < 0, "fds", part);
        count++;
    }
    for (int i = 0; i < count; i++) check(dup2(high[i], next++) < 0, "fds", "dup2");
    check(syscall(NR_close_range, (unsigned)next, ~0U, 0U) != 0, "fds", "close_range");
}

/* die: end together with the parent thread; after `ids`, which would undo it. Below a guard: it must still be there. */
static void op_die(char **args) {
    (void)args;
    struct pollfd guard = {.fd = lifeline, .events = 0};
    check(prctl(PR_SET_PDEATHSIG, SIGKILL), "die", "prctl");
    if (poll(&guard, 1, 0) > 0) _exit(STATUS);
}

static void end_ward(int number) {
    (void)number;
    kill(ward, SIGKILL);
}

/* Waits for the ward, with nothing open but stderr and the lifeline. SIGTERM ends the ward first. */
static void stand_guard(int lifeline_end) {
    struct sigaction action = {.sa_handler = end_ward};
    sigset_t none;
    int status;
    sigemptyset(&none);
    check(dup2(lifeline_end, FIRST_FD) < 0, "pidns", "dup2");
    int next = keep_traces(FIRST_FD + 1);
    check(syscall(NR_close_range, (unsigned)next, ~0U, 0U) != 0, "pidns", "close_range");
    sigaction(SIGTERM, &action, NULL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    while ((traces() ? wait_traced(ward, &status) : waitpid(ward, &status, 0)) < 0)
        check(errno != EINTR, "pidns", "wait");
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void join_group(void) {
    int file = openat(group, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    check(file < 0 || write(file, "0", 1) != 1, "cgroup", "cgroup.procs");
    close(file);
}

static pid_t fork_into_group(void) {
    struct clone_arguments arguments = {.flags = INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)group};
    if (group < 0) return fork();
    pid_t child = (pid_t)syscall(NR_clone3, &arguments, sizeof arguments);
    if (child >= 0 || (errno != ENOSYS && errno != EINVAL && errno != E2BIG)) return child;
    join_group(); /* before Linux 5.7, or clone3 filtered: the slow way */
    return fork();
}

/* pidns FD: the rest happens as first process of a pid namespace, so that nothing in it outlives that process; we stay
 * outside as its guard and write its pid to FD. Bubblewrap alone leaves a moment in which its child is nobody's. */
static void op_pidns(char **args) {
    int ends[2], ready[2];
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    check(pipe2(ends, O_CLOEXEC) || (traces() && pipe2(ready, O_CLOEXEC)), "pidns", "pipe");
    check(unshare(CLONE_NEWPID), "pidns", "unshare");
    ward = fork_into_group();
    check(ward < 0, "pidns", "fork");
    if (ward > 0) {
        if (traces()) begin_trace(ward);
        dprintf((int)number(args[0]), "%d", ward);
        stand_guard(ends[1]);
    }
    close(ends[1]);
    if (traces()) {
        close(ready[1]);
        check(read(ready[0], &(char){0}, 1) != 0, "pidns", "guard"); /* its end: the guard, which traces, stands */
    }
    lifeline = ends[0];
}

/* netns: a network of its own, in which loopback is up and nothing else is. */
static void op_netns(char **args) {
    (void)args;
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    check(unshare(CLONE_NEWNET), "netns", "unshare");
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    check(fd < 0 || ioctl(fd, SIOCSIFFLAGS, &loopback), "netns", "lo");
    close(fd);
}

/* calm: no core files, and default signals, whatever we were started with. */
static void op_calm(char **args) {
    (void)args;
    struct rlimit none = {0, 0};
    sigset_t empty;
    sigemptyset(&empty);
    check(setrlimit(RLIMIT_CORE, &none), "calm", "core");
    check(sigprocmask(SIG_SETMASK, &empty, NULL), "calm", "signals");
    for (int number = 1; number < 32; number++) signal(number, SIG_DFL);
    check(chdir("/"), "calm", "/");
}

/* try DIR: a file can be made in and removed from DIR. */
static void op_try(char **args) {
    char path[4096];
    snprintf(path, sizeof path, "%s/.stockade-try-%d", args[0], getpid());
    write_file("try", path, "x", 1, O_CREAT | O_EXCL, 0600);
    check(unlink(path), "try", path);
}

/* call NR A B C: a system call with plain numbers; how `stockade doctor` asks the filter from inside. */
static void op_call(char **args) {
    unsigned long nr = number(args[0]), a = number(args[1]), b = number(args[2]), c = number(args[3]);
    check(syscall((long)nr, a, b, c, 0UL, 0UL, 0UL) < 0, "call", args[0]);
}

/* write PATH TEXT: to a file that is there. */
static void op_write(char **args) {
    write_text("write", args[0], args[1]);
}

/* remove PATH: a file. */
static void op_remove(char **args) {
    check(unlink(args[0]), "remove", args[0]);
}

/* bound: what we become can never have a capability; before `ids`. */
static void op_bound(char **args) {
    (void)args;
    for (int number = 0; prctl(PR_CAPBSET_READ, number) >= 0; number++)
        check(prctl(PR_CAPBSET_DROP, number), "bound", "prctl");
}

/* filter PATH: of system calls, a BPF program as `bwrap --seccomp` reads it; from here on, and for good. */
static void op_filter(char **args) {
    static struct instruction start[MAX_FILTER];
    int fd = open(args[0], O_RDONLY | O_CLOEXEC);
    check(fd < 0, "filter", args[0]);
    ssize_t size = read(fd, start, sizeof start);
    errno = size < 0 ? errno : EINVAL;
    check(size <= 0 || size % (ssize_t)sizeof *start || read(fd, &(char){0}, 1), "filter", args[0]);
    close(fd);
    struct program program = {(unsigned short)((size_t)size / sizeof *start), start};
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "filter", "no_new_privs");
    check(prctl(PR_SET_SECCOMP, FILTERED, &program), "filter", "prctl");
}

/* keep: what is run in the end gets our environment. */
static void op_keep(char **args) {
    (void)args;
    environment = environ;
}

static const struct {
    const char *name;
    int count;
    void (*run)(char **args);
} operations[] = {
    {"parent", 1, op_parent}, {"cgroup", 1, op_cgroup},   {"userns", 0, op_userns},         {"mountns", 0, op_mountns},
    {"tree", 2, op_tree},     {"one", 2, op_one},         {"attributes", 2, op_attributes}, {"idmap", 3, op_idmap},
    {"tmpfs", 2, op_tmpfs},   {"dir", 4, op_dir},         {"link", 2, op_link},             {"file", 2, op_file},
    {"show", 2, op_show},     {"program", 2, op_program}, {"place", 2, op_place},           {"overlay", 2, op_overlay},
    {"pidns", 1, op_pidns},   {"proc", 1, op_proc},       {"root", 1, op_root},             {"ids", 2, op_ids},
    {"fds", 1, op_fds},       {"die", 0, op_die},         {"calm", 0, op_calm},             {"try", 1, op_try},
    {"call", 4, op_call},     {"write", 2, op_write},     {"remove", 1, op_remove},         {"bound", 0, op_bound},
    {"filter", 1, op_filter}, {"keep", 0, op_keep},       {"devices", 1, op_devices},       {"pts", 1, op_pts},
    {"seal", 1, op_seal},       {"subids", 4, op_subids}, {"users", 3, op_users},           {"chown", 2, op_chown},
    {"netns", 0, op_netns},   {"trace", 1, op_trace},
};

static void run_operation(char ***at) {
    const char *name = *(*at)++;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (strcmp(name, operations[i].name)) continue;
        for (int n = 0; n < operations[i].count; n++)
            if (!(*at)[n]) {
                errno = EINVAL;
                fail(name, "argument missing");
            }
        operations[i].run(*at);
        *at += operations[i].count;
        return;
    }
    errno = ENOSYS;
    fail("operation", name);
}

int main(int argc, char **argv) {
    char **at = argv + (argc > 0);
    umask(022);
    while (*at && strcmp(*at, "exec")) run_operation(&at);
    if (!*at) return 0;
    at++;
    if (!*at) {
        errno = EINVAL;
        fail("exec", "argument missing");
    }
    execve(*at, at, environment);
    fail("exec", *at);
    return STATUS;
}
