/* Prints "yes no": whether an orphan, whose parent ends just after the Nth time that it was read, still descends from this
 * process, and whether the process above it does. N is the argument. Built with `--wrap=open --wrap=close`. */
#include "agent.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int __real_open(const char *path, int flags, ...);
int __real_close(int fd);

static char watched[64];
static pid_t between;
static int watched_fd = -1, reads_left;

_Noreturn void die(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}

bool programs_hold(pid_t pid) { return pid < 0; }

uint64_t now_ms(void) { return 0; }

int __wrap_open(const char *path, int flags, ...) {
    int fd = __real_open(path, flags);
    if (watched[0] && strcmp(path, watched) == 0) watched_fd = fd;
    return fd;
}

int __wrap_close(int fd) {
    if (fd == watched_fd) {
        watched_fd = -1;
        if (between && --reads_left == 0) {
            kill(between, SIGKILL);
            waitpid(between, NULL, 0);
            between = 0;
        }
    }
    return __real_close(fd);
}

int main(int argc, char **argv) {
    int ends[2];
    pid_t orphan = 0;
    if (argc != 2 || (reads_left = atoi(argv[1])) < 1) die("which read?");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || pipe(ends) < 0) die("no pipe");
    between = fork();
    if (between == 0) {
        pid_t child = fork();
        if (child > 0 && write(ends[1], &child, sizeof child) != sizeof child) die("not told");
        for (;;) pause();
    }
    if (read(ends[0], &orphan, sizeof orphan) != sizeof orphan) die("not heard");
    snprintf(watched, sizeof watched, "/proc/%d/stat", orphan);
    bool below = descends(orphan, getpid());
    kill(orphan, SIGKILL);
    if (between) {
        kill(between, SIGKILL);
        die("the process between lives on");
    }
    printf("%s %s\n", below ? "yes" : "no", descends(getppid(), getpid()) ? "yes" : "no");
    return 0;
}
