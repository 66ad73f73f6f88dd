/* The job: one command of the shell, or one program beside it, from its start to its last output. */
#include "agent.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HOLD_MS = 3 };
enum { GROUPS_MS = 200, ALL_MS = 5000, TERMINATE_TICK_MS = 10, KILL_TICK_MS = 1, RECOVERY_MS = 2000 };

struct job job = {.child = {.status_fd = -1}};

uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int bytes_in(int fd) {
    int count = 0;
    return ioctl(fd, FIONREAD, &count) < 0 ? 0 : count;
}

void job_start_clock(void) {
    job.phase = RUNNING;
    job.started_ms = now_ms();
    job.deadline_ms = job.timeout_ms ? job.started_ms + job.timeout_ms : 0;
}

/* Output of a command that ends at once goes out together with its end, so that the host wakes up once. */
bool job_holds(void) {
    return job.kind != IDLE && job.phase == RUNNING && stream_pending() && stream_room() && now_ms() < job.started_ms + HOLD_MS;
}

/* What was written before the end is in the pipes by now: exactly that is still read. */
void job_finish(uint32_t status) {
    job.status = status;
    job.phase = DRAINING;
    job.deadline_ms = now_ms() + RECOVERY_MS;
    for (int i = 0; i < 2; i++) job.remaining[i] = job.out[i] < 0 ? 0 : bytes_in(job.out[i]);
}

void job_cannot_spawn(const char *error, uint32_t status) {
    struct text text = text_in(job.error, sizeof job.error);
    text_add(&text, error);
    job.flags |= SPAWN_FAILED;
    job_finish(status);
}

static void close_job(void) {
    const char *cwd = shell_cwd();
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
            if (!stream_room()) stream_flush();
            if (!stream_room()) return;
            int got = (int)stream_output(job.id, (uint8_t)(i + 1), job.out[i], (size_t)job.remaining[i]);
            job.remaining[i] = got ? job.remaining[i] - got : 0;
        }
    if (!recovering()) close_job();
}

static pid_t job_shell(void) { return job.kind == RUN ? shell.child.pid : 0; }

/* The shell is stopped first, so that it does not go on with its next line when the program before it ends. */
void job_end(uint32_t why) {
    if (job.phase > RUNNING) return;
    job.flags |= why;
    if (job.kind == RUN && job.phase == WAITING && shell.checkpoint) kill(shell.checkpoint, SIGKILL);  /* as broken */
    if (job_shell()) kill(job_shell(), SIGSTOP);
    signal_new(&job.before, job_shell(), shell.checkpoint, SIGTERM);
    signal_new(&job.before, job_shell(), shell.checkpoint, SIGCONT);
    job.phase = TERMINATING;
    job.deadline_ms = now_ms() + job.grace_ms;
}

static void keep_ending(void) {
    if (job.phase == TERMINATING) {
        if (now_ms() < job.deadline_ms && signal_new(&job.before, job_shell(), shell.checkpoint, 0)) return;
        job.phase = KILLING;
        job.killing_ms = now_ms();
    }
    if (job_shell()) kill(job_shell(), SIGKILL);
    size_t left = signal_new(&job.before, job_shell(), shell.checkpoint, SIGKILL);
    uint64_t since_ms = now_ms() - job.killing_ms;
    if (left && since_ms >= GROUPS_MS) kill_groups(&job.before, job_shell(), shell.checkpoint);
    /* The state of the shell is lost then: not for what only dies slowly, on a machine with much else to do. */
    if (left && since_ms >= ALL_MS && getpid() == 1) kill(-1, SIGKILL);
    if (left || job_shell() || (job.kind == EXEC && job.child.pid)) return;
    job_finish(EXIT_TIMED_OUT);
    shell_recover();
}

uint32_t exit_status(int status) {
    return WIFEXITED(status) ? (uint32_t)WEXITSTATUS(status) : 128u + (uint32_t)WTERMSIG(status);
}

void job_died(int status) {
    const char *error = spawn_error(&job.child);
    job.child.pid = 0;
    if (error) {
        bool missing = errno == ENOENT || errno == ENOTDIR, refused = errno == EACCES || errno == ENOEXEC;
        job_cannot_spawn(error, missing ? EXIT_NOT_FOUND : refused ? EXIT_NOT_EXECUTABLE : EXIT_CANNOT);
    } else if (job.phase == RUNNING) {
        job_finish(exit_status(status));
    }
}

void job_read_output(const struct pollfd polled[2]) {
    for (int i = 0; i < 2; i++) {
        if (polled[i].fd < 0 || job.kind == IDLE || job.phase == DRAINING) continue;
        if (polled[i].revents & POLLIN) stream_output(job.id, (uint8_t)(i + 1), job.out[i], CHUNK);
        else if (polled[i].revents & (POLLHUP | POLLERR)) job.closed[i] = true;
    }
}

void job_advance(void) {
    if (job.kind == IDLE) return;
    if (job.phase <= RUNNING && job.deadline_ms && now_ms() >= job.deadline_ms) job_end(TIMED_OUT);
    if (job.phase == TERMINATING || job.phase == KILLING) keep_ending();
    if (job.phase == DRAINING) drain();
}

int job_timeout(void) {
    if (job.kind == IDLE) return -1;
    if (job.phase == TERMINATING) return TERMINATE_TICK_MS;
    if (job.phase == KILLING) return KILL_TICK_MS;
    if (job_holds()) return 1;
    if (!job.deadline_ms) return -1;
    uint64_t now = now_ms();
    return now >= job.deadline_ms ? 0 : job.deadline_ms - now > 60000 ? 60000 : (int)(job.deadline_ms - now);
}
