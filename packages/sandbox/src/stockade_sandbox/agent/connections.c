/* Connections of clients inside to one port of the sandbox's loopback, and the streams of programs (programs.c), carried
 * to the host as frames. Nothing blocks; each side sends what the other has room for, so a connection costs one window of
 * memory and never holds up another. */
#include "agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 128, WINDOW = 128 << 10, PIECE = 32 << 10, REST_MS = 100 };

static struct connection {
    bool used, opened;           /* opened: the host knows of it */
    int fd;                      /* -1: broken, and the host has to be told */
    uint32_t id;
    uint32_t credit;             /* bytes that the host has room for */
    uint32_t untold;             /* bytes that the client took since the host was told */
    bool client_ended;           /* and the host knows */
    bool host_ended, shut;       /* the client learns it after the last byte */
    bool let_go;                 /* by the host: it ends after the last byte */
    uint8_t *bytes;              /* WINDOW of them: from the host, for the client */
    size_t start, end;
} connections[MAX_CONNECTIONS];

static int listener = -1;
static bool resting;             /* no descriptor is left: accepting waits a moment */
static bool unsaid;              /* something could not be said to the host for want of room */
static uint32_t last_id;
static size_t first;             /* whose turn it is */

const char *connections_listen(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (listener >= 0) return "it listens already";
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return error_name(errno);
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, BACKLOG) < 0) {
        const char *error = error_name(errno);
        close(fd);
        return error;
    }
    listener = fd;
    return NULL;
}

static void forget(struct connection *one) {
    if (one->fd >= 0) close(one->fd);
    free(one->bytes);
    *one = (struct connection){.fd = -1};
}

static void break_off(struct connection *one) {
    if (one->let_go) {
        forget(one);
        return;
    }
    close(one->fd);
    one->fd = -1;
    one->start = one->end = 0;
}

static struct connection *find(uint32_t id) {
    for (size_t i = 0; i < MAX_CONNECTIONS; i++)
        if (connections[i].used && connections[i].id == id) return &connections[i];
    return NULL;
}

static struct connection *free_one(void) {
    for (size_t i = 0; i < MAX_CONNECTIONS; i++)
        if (!connections[i].used) return &connections[i];
    return NULL;
}

/* ---- from the host; what it says of a connection that broke meanwhile is passed over ---- */

void connections_data(const uint8_t *at, const uint8_t *end) {
    struct connection *one = find(take_u32(&at, end));
    size_t length = (size_t)(end - at);
    if (!one || one->fd < 0) return;
    if (one->host_ended || length > WINDOW - (one->end - one->start)) die("more than there is room for");
    one->host_ended = length == 0;
    if (length > WINDOW - one->end) {
        memmove(one->bytes, one->bytes + one->start, one->end - one->start);
        one->end -= one->start;
        one->start = 0;
    }
    memcpy(one->bytes + one->end, at, length);
    one->end += length;
}

void connections_taken(const uint8_t *at, const uint8_t *end) {
    struct connection *one = find(take_u32(&at, end));
    uint32_t count = take_u32(&at, end);
    if (!one) return;
    if (count > WINDOW - one->credit) die("more was taken than was sent");
    one->credit += count;
}

void connections_close(const uint8_t *at, const uint8_t *end) {
    struct connection *one = find(take_u32(&at, end));
    if (!one) return;
    one->let_go = true;
    if (one->fd < 0) forget(one);
}

/* ---- from the clients ---- */

static bool use(struct connection *one, int fd, bool opened) {
    do last_id++;
    while (!last_id || find(last_id));
    *one = (struct connection){
        .used = true, .opened = opened, .fd = fd, .id = last_id, .credit = WINDOW, .bytes = malloc(WINDOW)};
    return one->bytes;
}

static void accept_all(void) {
    for (struct connection *one; (one = free_one());) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            resting = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
            return;
        }
        if (use(one, fd, false)) continue;
        forget(one);
        resting = true;
        return;
    }
}

uint32_t connections_adopt(int fd) {
    struct connection *one = free_one();
    if (!one) return 0;
    if (use(one, fd, true)) return one->id;
    *one = (struct connection){.fd = -1};
    return 0;
}

void connections_drop(uint32_t id) {
    struct connection *one = find(id);
    if (one) forget(one);
}

bool connections_unread(uint32_t id) {
    const struct connection *one = find(id);
    return one && one->fd >= 0 && !one->client_ended && !one->let_go && bytes_in(one->fd) > 0;
}

static void read_client(struct connection *one) {
    ssize_t got = stream_data(one->id, one->fd, one->credit < PIECE ? one->credit : PIECE);
    if (got > 0) one->credit -= (uint32_t)got;
    else if (got == 0) one->client_ended = true;
    else if (errno != EAGAIN && errno != EINTR) break_off(one);
}

static void write_client(struct connection *one) {
    while (one->end > one->start) {
        ssize_t sent = send(one->fd, one->bytes + one->start, one->end - one->start, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (sent <= 0) {
            break_off(one);
            return;
        }
        one->start += (size_t)sent;
        one->untold += (uint32_t)sent;
    }
    one->start = one->end = 0;
}

/* What follows from what happened, as far as there is room to say it. */
static void advance(struct connection *one) {
    bool room = stream_room();
    if (!one->opened && room) {
        stream_numbers(REP_OPENED, 1, one->id, 0);
        one->opened = true;
    }
    if (one->used && one->fd >= 0) write_client(one);
    if (!one->used) return;
    if (!room) {
        unsaid |= !one->opened || one->fd < 0 || one->untold >= WINDOW / 2;
    } else if (one->fd < 0) {
        stream_numbers(REP_CLOSED, 1, one->id, 0);
        forget(one);
    } else if (one->untold >= WINDOW / 2) {
        stream_numbers(REP_TAKEN, 2, one->id, one->untold);
        one->untold = 0;
    }
    if (!one->used || one->fd < 0) return;
    if (one->end == one->start && one->let_go) {
        forget(one);
    } else if (one->end == one->start && one->host_ended && !one->shut) {
        shutdown(one->fd, SHUT_WR);
        one->shut = true;
    }
}

/* ---- the loop ---- */

/* A descriptor that is not waited for is left out: a half dead one would wake the loop for ever. */
size_t connections_poll(struct pollfd polled[1 + MAX_CONNECTIONS]) {
    polled[0] = (struct pollfd){!resting && free_one() ? listener : -1, POLLIN, 0};
    resting = false;
    size_t count = 1;            /* no more than that: poll refuses more entries than there may be descriptors */
    for (size_t i = 0; i < MAX_CONNECTIONS; i++) {
        const struct connection *one = &connections[i];
        if (one->used) count = 2 + i;
        bool reads = one->used && one->opened && one->credit && !one->client_ended && !one->let_go && stream_room();
        bool writes = one->used && one->end > one->start;
        short events = (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
        polled[1 + i] = (struct pollfd){events ? one->fd : -1, events, 0};
    }
    return count;
}

/* How long `poll` may wait: for who has to try again, not as long as `otherwise`. */
int connections_timeout(int otherwise) {
    if (unsaid && stream_room()) return 0;
    return resting && (otherwise < 0 || otherwise > REST_MS) ? REST_MS : otherwise;
}

void connections_serve(const struct pollfd polled[1 + MAX_CONNECTIONS]) {
    if (polled[0].revents) accept_all();
    unsaid = false;
    for (size_t i = 0; i < MAX_CONNECTIONS; i++) {
        size_t which = (first + i) % MAX_CONNECTIONS;
        struct connection *one = &connections[which];
        if (!one->used) continue;
        const struct pollfd *mine = &polled[1 + which];
        if (one->opened && !one->let_go && mine->fd == one->fd && (mine->events & POLLIN) && (mine->revents & ~POLLOUT))
            read_client(one);
        if (one->used) advance(one);
    }
    first++;
}
