/* The job: one command of the shell, from its start to its last output. */
#include "agent.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RECOVERY_MS = 2000 };

struct job job;

uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int ms_until(uint64_t deadline_ms) {
    uint64_t now = now_ms();
    return !deadline_ms ? -1 : now >= deadline_ms ? 0 : deadline_ms - now > 60000 ? 60000 : (int)(deadline_ms - now);
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
    return job.active && job.phase == RUNNING && stream_pending() && stream_room() && now_ms() < job.started_ms + HOLD_MS;
}

/* What was written before the end is in the pipes by now: exactly that is still read. */
void job_finish(uint32_t status) {
    job.status = status;
    job.phase = DRAINING;
    job.deadline_ms = now_ms() + RECOVERY_MS;
    for (int i = 0; i < 2; i++) job.remaining[i] = job.out[i] < 0 ? 0 : bytes_in(job.out[i]);
}

void job_cannot_spawn(const char *error) {
    struct text text = text_in(job.error, sizeof job.error);
    text_add(&text, error);
    job.flags |= SPAWN_FAILED;
    job_finish(EXIT_CANNOT);
}

static void close_job(void) {
    shell_tell_exports();
    const char *cwd = shell_cwd();
    stream_done(job.id, job.status, job.flags | shell.flags, cwd, job.error);
    shell.flags = 0;
    job.active = false;
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
    if (!recovering() && stream_room()) close_job();
}

/* The shell is stopped first, so that it does not go on with its next line when the program before it ends. */
void job_end(uint32_t why) {
    if (job.phase > RUNNING) return;
    job.flags |= why;
    if (job.phase == WAITING && shell.checkpoint) kill(shell.checkpoint, SIGKILL);  /* as broken */
    if (shell.child.pid) kill(shell.child.pid, SIGSTOP);
    job.phase = ENDING;
    job.ending = (struct ending){0};
}

static void keep_ending(void) {
    struct scope scope = {.before = &job.before, .shell = shell.child.pid, .spare = shell.checkpoint};
    if (!end_all(&scope, &job.ending, job.grace_ms) || shell.child.pid) return;
    job_finish(EXIT_TIMED_OUT);
    shell_recover();
}

uint32_t exit_status(int status) {
    return WIFEXITED(status) ? (uint32_t)WEXITSTATUS(status) : 128u + (uint32_t)WTERMSIG(status);
}

void job_read_output(const struct pollfd polled[2]) {
    for (int i = 0; i < 2; i++) {
        if (polled[i].fd < 0 || !job.active || job.phase == DRAINING) continue;
        if (polled[i].revents & POLLIN) stream_output(job.id, (uint8_t)(i + 1), job.out[i], CHUNK);
        else if (polled[i].revents & (POLLHUP | POLLERR)) job.closed[i] = true;
    }
}

void job_advance(void) {
    if (!job.active) return;
    if (job.phase <= RUNNING && job.deadline_ms && now_ms() >= job.deadline_ms) job_end(TIMED_OUT);
    if (job.phase == ENDING) keep_ending();
    if (job.phase == DRAINING) drain();
}

int job_timeout(void) {
    if (!job.active) return -1;
    if (job.phase == ENDING) return end_timeout(&job.ending);
    if (job_holds()) return 1;
    return ms_until(job.deadline_ms);
}
