/* Frames: u32 little-endian payload length, u8 type, payload. Nothing here blocks. */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUEUE = 4 * CHUNK, RESERVE = 16 << 10 };  /* RESERVE: a DONE always fits */

static int in_fd, out_fd;
static uint8_t queue[QUEUE];
static size_t queue_start, queue_end;
static uint8_t header[HEADER];
static size_t header_have;
static struct frame current;
static size_t payload_have;

static void put_u32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

void stream_open(int in, int out) {
    in_fd = in;
    out_fd = out;
    fcntl(in, F_SETFL, fcntl(in, F_GETFL) | O_NONBLOCK);
    fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK);
}

/* Reads up to `wanted`; 0 when nothing is there. The end of the stream is the end of the sandbox. */
static size_t receive(uint8_t *to, size_t wanted) {
    ssize_t got = read(in_fd, to, wanted);
    if (got > 0) return (size_t)got;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    die(NULL);
}

bool stream_next(struct frame *frame) {
    if (header_have == HEADER && payload_have == current.length) {  /* the frame handed out last time */
        free(current.payload);
        current.payload = NULL;
        header_have = payload_have = 0;
    }
    while (header_have < HEADER) {
        size_t got = receive(header + header_have, HEADER - header_have);
        if (got == 0) return false;
        header_have += got;
        if (header_have < HEADER) continue;
        const uint8_t *at = header;
        current.length = take_u32(&at, header + HEADER);
        current.type = header[4];
        if (current.length > MAX_FRAME) die("a frame is too long");
        current.payload = malloc(current.length + 1);
        if (!current.payload) die("no memory for a frame");
    }
    while (payload_have < current.length) {
        size_t got = receive(current.payload + payload_have, current.length - payload_have);
        if (got == 0) return false;
        payload_have += got;
    }
    current.payload[current.length] = 0;
    *frame = current;
    return true;
}

bool stream_pending(void) { return queue_end > queue_start; }

bool stream_room(void) {
    if (queue_start && QUEUE - queue_end < CHUNK + RESERVE) {
        memmove(queue, queue + queue_start, queue_end - queue_start);
        queue_end -= queue_start;
        queue_start = 0;
    }
    return QUEUE - queue_end >= CHUNK + RESERVE;
}

void stream_flush(void) {
    while (stream_pending()) {
        ssize_t sent = write(out_fd, queue + queue_start, queue_end - queue_start);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (sent <= 0) die(NULL);
        queue_start += (size_t)sent;
    }
    queue_start = queue_end = 0;
}

static uint8_t *frame_start(uint8_t type, size_t length) {
    if (QUEUE - queue_end < HEADER + length) stream_room();
    if (QUEUE - queue_end < HEADER + length) die("the queue to the host is full");
    put_u32(queue + queue_end, (uint32_t)length);
    queue[queue_end + 4] = type;
    return queue + queue_end + HEADER;
}

void stream_hello(void) {
    uint8_t *payload = frame_start(REP_HELLO, 8);
    put_u32(payload, PROTOCOL_VERSION);
    put_u32(payload + 4, (uint32_t)getpid());
    queue_end += HEADER + 8;
}

size_t stream_output(uint32_t id, uint8_t stream, int fd, size_t limit) {
    if (!stream_room()) return 0;
    size_t most = CHUNK - 5;
    ssize_t got = read(fd, queue + queue_end + HEADER + 5, limit < most ? limit : most);
    if (got <= 0) return 0;
    uint8_t *payload = frame_start(REP_OUT, 5 + (size_t)got);
    put_u32(payload, id);
    payload[4] = stream;
    queue_end += HEADER + 5 + (size_t)got;
    return (size_t)got;
}

void stream_done(uint32_t id, uint32_t status, uint32_t flags, const char *cwd, const char *error) {
    size_t cwd_length = strlen(cwd) + 1, error_length = strlen(error);
    uint8_t *payload = frame_start(REP_DONE, 12 + cwd_length + error_length);
    put_u32(payload, id);
    put_u32(payload + 4, status);
    put_u32(payload + 8, flags);
    memcpy(payload + 12, cwd, cwd_length);
    memcpy(payload + 12 + cwd_length, error, error_length);
    queue_end += HEADER + 12 + cwd_length + error_length;
}

void stream_listening(const char *error) {
    size_t length = strlen(error) + 1;
    memcpy(frame_start(REP_LISTENING, length), error, length);
    queue_end += HEADER + length;
}

void stream_opened(uint32_t id, uint32_t address, uint32_t port) {
    uint8_t *payload = frame_start(REP_OPENED, 12);
    put_u32(payload, id);
    put_u32(payload + 4, address);
    put_u32(payload + 8, port);
    queue_end += HEADER + 12;
}

void stream_exports(const char *text, size_t length) {
    memcpy(frame_start(REP_EXPORTS, length), text, length);
    queue_end += HEADER + length;
}

void stream_ended(uint32_t program, uint32_t status, uint32_t flags, const char *error) {
    size_t length = strlen(error) + 1;
    uint8_t *payload = frame_start(REP_ENDED, 12 + length);
    put_u32(payload, program);
    put_u32(payload + 4, status);
    put_u32(payload + 8, flags);
    memcpy(payload + 12, error, length);
    queue_end += HEADER + 12 + length;
}

void stream_numbers(uint8_t type, size_t count, uint32_t number, uint32_t second) {
    uint8_t *payload = frame_start(type, 4 * count);
    put_u32(payload, number);
    if (count > 1) put_u32(payload + 4, second);
    queue_end += HEADER + 4 * count;
}

ssize_t stream_data(uint32_t id, int fd, size_t limit) {
    if (!stream_room()) {
        errno = EAGAIN;
        return -1;
    }
    size_t most = CHUNK - 4;
    ssize_t got = read(fd, queue + queue_end + HEADER + 4, limit < most ? limit : most);
    if (got < 0) return got;
    put_u32(frame_start(REP_DATA, 4 + (size_t)got), id);
    queue_end += HEADER + 4 + (size_t)got;
    return got;
}

static uint64_t take_integer(const uint8_t **at, const uint8_t *end, int bytes) {
    if (end - *at < bytes) die("a frame is too short");
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)*(*at)++ << (8 * i);
    return value;
}

uint32_t take_u32(const uint8_t **at, const uint8_t *end) { return (uint32_t)take_integer(at, end, 4); }

uint64_t take_u64(const uint8_t **at, const uint8_t *end) { return take_integer(at, end, 8); }

char *take_string(const uint8_t **at, const uint8_t *end) {
    const uint8_t *nul = memchr(*at, 0, (size_t)(end - *at));
    if (!nul) die("a string in a frame does not end");
    char *string = (char *)*at;
    *at = nul + 1;
    return string;
}
