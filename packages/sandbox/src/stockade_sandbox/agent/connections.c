/* Connections of clients inside to some ports of the sandbox's loopback, and the pipes of programs (programs.c), carried
 * to the host as frames. Nothing blocks; each side sends what the other has room for, so a connection costs one window of
 * memory and never holds up another. */
#include "agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128, WINDOW = 128 << 10, PIECE = 32 << 10, LAST_OF_TERMINAL = 128 << 10, REST_MS = 100,
       DNS = 53, DNS_HEADER = 12, DNS_MAX = 512 };

static struct connection {
    bool used, opened;           /* opened: the host knows of it */
    bool broken;                 /* and the host has to be told */
    int in, out;                 /* what is read, what is written to: one socket, or two pipes; -1: none (any more) */
    uint32_t id;
    uint32_t address, port;      /* a client's: where it went; 0, 0: to SSH_AGENT */
    uint32_t credit;             /* bytes that the host has room for */
    uint32_t untold;             /* bytes that the client took since the host was told */
    bool client_ended;           /* and the host knows */
    bool host_ended, shut;       /* the client learns it after the last byte */
    bool terminal;               /* `in` and `out` are a pseudo terminal's */
    bool let_go;                 /* by the host: it ends after the last byte */
    int last;                    /* of a program that has ended: what it wrote and is still to be read; -1: it lives */
    uint8_t *bytes;              /* WINDOW of them: from the host, for the client */
    size_t start, end;
    int read_at;                 /* in what is polled; -1: it is not waited for */
} connections[MAX_CONNECTIONS];

static int listeners[MAX_LISTENERS] = {[0 ... MAX_LISTENERS - 1] = -1};
static int datagrams = -1;       /* questions of names: those who ask are told to come back by TCP */
static size_t listened;          /* how many were polled */
static bool resting;             /* no descriptor is left: accepting waits a moment */
static bool unsaid;              /* something could not be said to the host for want of room */
static uint32_t last_id, clients;
static size_t first;             /* whose turn it is */

static int bound_at(int type, const struct sockaddr *address, socklen_t size) {
    int fd = socket(address->sa_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address, size) == 0 && (type == SOCK_DGRAM || listen(fd, BACKLOG) == 0)) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int bound(int type, uint16_t port, uint32_t where) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(where)}};
    return bound_at(type, (struct sockaddr *)&address, sizeof address);
}

static int bound_to_socket(void) {
    static const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SSH_AGENT};
    int fd = bound_at(SOCK_STREAM, (const struct sockaddr *)&address, sizeof address);
    return fd >= 0 && chmod(SSH_AGENT, 0777) == 0 ? fd : -1;
}

const char *connections_listen(uint16_t port, bool everywhere) {
    size_t free = 0;
    while (free < MAX_LISTENERS && listeners[free] >= 0) free++;
    if (free == MAX_LISTENERS) return "too many ports";
    int fd = port ? bound(SOCK_STREAM, port, everywhere ? INADDR_ANY : INADDR_LOOPBACK) : bound_to_socket();
    if (fd < 0) return error_name(errno);
    listeners[free] = fd;
    if (port == DNS && (datagrams = bound(SOCK_DGRAM, port, INADDR_LOOPBACK)) < 0) return error_name(errno);
    return NULL;
}

static bool is_client(const struct connection *one) { return one->id & CLIENT; }

static void close_out(struct connection *one) {
    if (one->out >= 0 && one->out != one->in) close(one->out);
    one->out = -1;
    one->shut = true;
}

static void forget(struct connection *one) {
    close_out(one);
    if (one->in >= 0) close(one->in);
    clients -= is_client(one);
    free(one->bytes);
    *one = (struct connection){0};
}

static void break_off(struct connection *one) {
    if (one->let_go) {
        forget(one);
        return;
    }
    close_out(one);
    close(one->in);
    one->in = -1;
    one->broken = true;
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
    if (!one || one->broken) return;
    if (one->host_ended || length > WINDOW - (one->end - one->start)) die("more than there is room for");
    one->host_ended = length == 0;
    if (one->out < 0) {          /* a program that reads no more: the host may forget what it sends */
        one->untold += (uint32_t)length;
        return;
    }
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
    if (one->broken) forget(one);
}

/* ---- from the clients ---- */

static bool use(struct connection *one, uint32_t id, int in, int out) {
    *one = (struct connection){.used = true, .opened = !(id & CLIENT), .in = in, .out = out, .id = id, .credit = WINDOW,
                               .last = -1, .bytes = out < 0 ? NULL : malloc(WINDOW), .read_at = -1};
    clients += is_client(one);
    return out < 0 || one->bytes;
}

static void accept_all(int listener) {
    for (struct connection *one; clients < MAX_CLIENTS && (one = free_one());) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            resting = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
            return;
        }
        do last_id = (last_id + 1) & (CLIENT - 1);
        while (find(CLIENT | last_id));
        struct sockaddr_in went = {0};
        if (use(one, CLIENT | last_id, fd, fd) && getsockname(fd, (struct sockaddr *)&went, &(socklen_t){sizeof went}) == 0) {
            if (went.sin_family == AF_INET) {
                one->address = ntohl(went.sin_addr.s_addr);
                one->port = ntohs(went.sin_port);
            }
            continue;
        }
        forget(one);
        resting = true;
        return;
    }
}

/* "Truncated" (RFC 1035 section 4.1.1): the same question then comes by TCP, and is the host's to answer. */
static void answer_datagram(void) {
    uint8_t question[DNS_MAX];
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    ssize_t got = recvfrom(datagrams, question, sizeof question, 0, (struct sockaddr *)&from, &length);
    if (got < DNS_HEADER || question[2] & 0x80) return;
    question[2] |= 0x82;
    sendto(datagrams, question, (size_t)got, 0, (struct sockaddr *)&from, length);
}

void connections_adopt(uint32_t id, int in, int out, bool terminal) {
    struct connection *one = free_one();
    if (!one || find(id) || !id || id & CLIENT) die("a number that is none");
    if (!use(one, id, in, out)) die("no memory for a program's input");
    one->terminal = terminal;
}

bool connections_resize(uint32_t id, uint32_t size) {
    const struct connection *one = find(id);
    struct winsize window = {.ws_row = (unsigned short)(size >> 16), .ws_col = (unsigned short)(size & 0xffff)};
    return one && one->terminal && one->in >= 0 && ioctl(one->in, TIOCSWINSZ, &window) == 0;
}

pid_t connections_foreground(uint32_t id) {
    const struct connection *one = find(id);
    pid_t group = one && one->terminal && one->in >= 0 ? tcgetpgrp(one->in) : 0;
    return group > 1 ? group : 0;
}

/* What is left in a pseudo terminal cannot be counted; poll looks behind what is on its way. A background job that goes on
 * writing is cut off. */
static bool has_more(const struct connection *one) {
    struct pollfd polled = {one->in, POLLIN, 0};
    return poll(&polled, 1, 0) > 0 && polled.revents & POLLIN;
}

void connections_last(uint32_t id) {
    struct connection *one = find(id);
    if (!one || one->broken) return;
    one->last = one->in < 0 ? 0 : !one->terminal ? bytes_in(one->in) : has_more(one) ? LAST_OF_TERMINAL : 0;
    one->start = one->end = 0;
    close_out(one);
}

void connections_drop(uint32_t id) {
    struct connection *one = find(id);
    if (one) forget(one);
}

bool connections_unread(uint32_t id) {
    const struct connection *one = find(id);
    return one && !one->broken && !one->client_ended && !one->let_go && one->last > 0;
}

static void read_client(struct connection *one) {
    ssize_t got = stream_data(one->id, one->in, one->credit < PIECE ? one->credit : PIECE);
    if (got > 0) one->credit -= (uint32_t)got;
    else if (got < 0 && errno == EIO && one->terminal) {     /* nobody has it open any more */
        stream_numbers(REP_DATA, 1, one->id, 0);
        one->client_ended = true;
    } else if (got == 0) one->client_ended = true;
    else if (errno != EAGAIN && errno != EINTR) break_off(one);
    if (got > 0 && one->last > 0) one->last = got < one->last && (!one->terminal || has_more(one)) ? one->last - (int)got : 0;
}

static void write_client(struct connection *one) {
    while (one->end > one->start) {
        ssize_t sent = write(one->out, one->bytes + one->start, one->end - one->start);  /* SIGPIPE is blocked */
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (sent <= 0 && one->out == one->in) {
            break_off(one);
            return;
        }
        if (sent <= 0) {         /* a program may close its input and go on */
            sent = (ssize_t)(one->end - one->start);
            close_out(one);
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
        stream_opened(one->id, one->address, one->port);
        one->opened = true;
    }
    write_client(one);
    if (!one->used) return;
    if (!room) {
        unsaid |= !one->opened || one->broken || one->untold >= WINDOW / 2;
    } else if (one->broken) {
        stream_numbers(REP_CLOSED, 1, one->id, 0);
        forget(one);
    } else if (one->untold >= WINDOW / 2) {
        stream_numbers(REP_TAKEN, 2, one->id, one->untold);
        one->untold = 0;
    }
    if (!one->used || one->broken || one->end > one->start) return;
    if (one->let_go) {
        forget(one);
    } else if (one->host_ended && !one->shut) {
        if (one->out == one->in) shutdown(one->out, SHUT_WR);
        else close_out(one);
        one->shut = true;
    }
}

/* ---- the loop ---- */

/* A descriptor that is not waited for is left out: a half dead one would wake the loop for ever, and poll refuses more
 * entries than there may be descriptors. */
size_t connections_poll(struct pollfd polled[MAX_POLLED]) {
    bool room = !resting && clients < MAX_CLIENTS && free_one();
    size_t count = 0;
    for (; count < MAX_LISTENERS && listeners[count] >= 0; count++)
        polled[count] = (struct pollfd){room ? listeners[count] : -1, POLLIN, 0};
    listened = count;
    if (datagrams >= 0) polled[count++] = (struct pollfd){datagrams, POLLIN, 0};
    resting = false;
    for (struct connection *one = connections; one < connections + MAX_CONNECTIONS; one++) {
        if (!one->used) continue;
        bool reads = one->opened && one->in >= 0 && one->credit && !one->client_ended && !one->let_go && stream_room();
        bool writes = one->end > one->start, both = reads && writes && one->in == one->out;
        one->read_at = reads ? (int)count : -1;
        if (reads) polled[count++] = (struct pollfd){one->in, (short)(both ? POLLIN | POLLOUT : POLLIN), 0};
        if (writes && !both) polled[count++] = (struct pollfd){one->out, POLLOUT, 0};
    }
    return count;
}

/* How long `poll` may wait: for who has to try again, not as long as `otherwise`. */
int connections_timeout(int otherwise) {
    if (unsaid && stream_room()) return 0;
    return resting && (otherwise < 0 || otherwise > REST_MS) ? REST_MS : otherwise;
}

void connections_serve(const struct pollfd polled[MAX_POLLED]) {
    for (size_t i = 0; i < listened; i++)
        if (polled[i].revents) accept_all(polled[i].fd);
    if (datagrams >= 0 && polled[listened].fd == datagrams && polled[listened].revents) answer_datagram();
    unsaid = false;
    for (size_t i = 0; i < MAX_CONNECTIONS; i++) {
        struct connection *one = &connections[(first + i) % MAX_CONNECTIONS];
        if (one->used && one->read_at >= 0 && (polled[one->read_at].revents & ~POLLOUT)) read_client(one);
        if (one->used) advance(one);
    }
    first++;
}
