/* trace.c: the guard of a sandbox writes down which programs are started in it.
 *
 * It traces the first process of the sandbox, and so by ptrace(2) all that come of it: the kernel stops each of them when
 * a program was started in it, before its first instruction, when its words are still as they were given. Nothing inside
 * can be started unseen, nor change its own words before. The filter allows nobody inside to trace.
 */
#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_WORDS = 4096, MAX_BYTES = 16 << 20 };

struct entry { /* then the path of the program and a zero, then its words, each with a zero */
    uint32_t length, pid;
    uint64_t at_ns;
};

static int record = -1, processes = -1;
static uint64_t count;
static off_t end = sizeof count;

/* trace FD: from `pidns` on, what is started goes to FD: the number of all, then entries, as many as MAX_BYTES take. */
void op_trace(char **args) {
    int folder = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    check(folder < 0, "trace", "/proc");
    record = fcntl((int)number(args[0]), F_DUPFD_CLOEXEC, HIGH_FD);
    processes = fcntl(folder, F_DUPFD_CLOEXEC, HIGH_FD);
    check(record < 0 || processes < 0 || close(folder), "trace", args[0]);
}

int traces(void) { return record >= 0; }

/* The descriptors that a guard keeps, from `first` on. */
int keep_traces(int first) {
    if (record < 0) return first;
    check(dup2(record, first) < 0 || dup2(processes, first + 1) < 0, "trace", "dup2");
    record = first;
    processes = first + 1;
    return first + 2;
}

void begin_trace(pid_t pid) {
    long options =
        PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    check(ptrace(PTRACE_SEIZE, pid, 0, options), "trace", "seize");
}

static size_t words_of(pid_t pid, char *into, size_t size) {
    char path[32];
    snprintf(path, sizeof path, "%d/cmdline", pid);
    int file = openat(processes, path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t got = read(file, into, size);
    close(file);
    return got > 0 ? (size_t)got : 0;
}

static void write_down(pid_t pid) {
    static char text[4096 + MAX_WORDS];
    char path[32];
    struct timespec now;
    snprintf(path, sizeof path, "%d/exe", pid);
    ssize_t length = readlinkat(processes, path, text, 4095);
    if (length < 0) length = 0;
    text[length++] = 0;
    length += (ssize_t)words_of(pid, text + length, MAX_WORDS);
    clock_gettime(CLOCK_REALTIME, &now);
    struct entry head = {(uint32_t)length, (uint32_t)pid, (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec};
    count++;
    if (end + (off_t)sizeof head + length <= MAX_BYTES) {
        check(pwrite(record, text, (size_t)length, end + (off_t)sizeof head) != length, "trace", "write");
        check(pwrite(record, &head, sizeof head, end) != sizeof head, "trace", "write");
        end += (off_t)sizeof head + length;
    }
    check(pwrite(record, &count, sizeof count, 0) != sizeof count, "trace", "write");
}

/* What a traced process stopped for is answered; it goes on as it would without us. */
static void answer(pid_t pid, int status) {
    int signal = WSTOPSIG(status), event = status >> 16;
    if (event == PTRACE_EVENT_EXEC) write_down(pid);
    if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
        ptrace(PTRACE_LISTEN, pid, 0, 0); /* it is stopped as a job is, until it is sent SIGCONT */
        return;
    }
    ptrace(PTRACE_CONT, pid, 0, (long)(event ? 0 : signal)); /* one that was killed meanwhile is told below */
}

/* As waitpid(2) on a child of ours that is traced with all that come of it, to its end. */
pid_t wait_traced(pid_t ward, int *status) {
    for (;;) {
        pid_t pid = waitpid(-1, status, __WALL);
        if (pid < 0 || (pid == ward && !WIFSTOPPED(*status))) return pid;
        if (WIFSTOPPED(*status)) answer(pid, *status);
    }
}
