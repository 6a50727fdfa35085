// SPDX-License-Identifier: Apache-2.0
/* NCCL between processes of one machine: messages go through shared memory. A group is an operation
 * of its stream, or a node of the graph that the stream is captured into; of what is sent as much
 * is taken as there is room. Two processes that begin the groups of two communicators in different
 * orders could wait for each other on hardware: they end with a report. Groups in which a process
 * only sends, or only receives, are transfers, whose orders may differ.
 *
 * $EMULATED_NCCL: hang@N: a process's Nth group of messages never begins; lost@N: it finds that a
 * peer has failed. */
#include <fcntl.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 8, COMMS = 48, ROOM = 1 << 18, QUEUE = 4096, KEPT = 64 };

/* What goes from one rank of a communicator to another one. */
typedef struct {
  _Atomic uint64_t written, read;
  char bytes[ROOM];
} pipe_of;

typedef struct {
  _Atomic int came;
  _Atomic int color[RANKS], key[RANKS];
} rendezvous;

/* How many groups of each communicator a process had begun when it began one. */
typedef struct {
  _Atomic int64_t number; /* of the group, from 1 */
  int counts[COMMS];
} beginning;

/* It is sparse: what nobody touches takes no memory. By ranks of the world; communicators of one
 * split have no process in common. */
typedef struct {
  rendezvous rendezvous_of[COMMS];
  pipe_of pipes[COMMS][RANKS][RANKS];
  beginning beginnings[COMMS][RANKS][KEPT];
} shared;

struct ncclComm {
  shared *shared;
  int number, ranks, rank;
  int splits;             /* of the world communicator */
  struct ncclComm *world; /* NULL: it is that */
  int waits;              /* for so many in its rendezvous; 0: it is formed */
  int color, key;
  int world_of[RANKS]; /* the rank in the world of each rank */
  int begun;           /* groups that are not done */
  bool aborted;
};

/* Those of this process, by number, and how many groups each has begun. */
static ncclComm_t formed[COMMS];
static int counts[COMMS];

static void rest(void) { nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }

ncclResult_t ncclGetVersion(int *ret) { return *ret = NCCL_VERSION_CODE, ncclSuccess; }

ncclResult_t ncclGetUniqueId(ncclUniqueId *ret) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  memset(ret, 0, sizeof *ret);
  snprintf(
      ret->internal, sizeof ret->internal, "/tessera-nccl-%d-%lld", (int)getpid(),
      (long long)t.tv_sec * 1000000000 + t.tv_nsec);
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "unhandled system error";
}

/* ---- forming ---- */

static void come(ncclComm_t c, int number, int rank, int all) {
  rendezvous *m = &c->shared->rendezvous_of[number];
  c->number = number;
  c->waits = all;
  atomic_store(&m->color[rank], c->color);
  atomic_store(&m->key[rank], c->key);
  atomic_fetch_add(&m->came, 1);
}

/* Once all have come, the ranks are in the order of their keys. */
static void find_rank(ncclComm_t c) {
  rendezvous *m = &c->shared->rendezvous_of[c->number];
  int all = c->waits;
  c->ranks = c->rank = 0;
  for (int r = 0; r < all; r++) {
    if (atomic_load(&m->color[r]) != c->color) continue;
    int rank = 0;
    for (int q = 0; q < all; q++)
      rank += atomic_load(&m->color[q]) == c->color &&
              atomic_load(&m->key[q]) < atomic_load(&m->key[r]);
    c->world_of[rank] = r;
    c->ranks++;
    c->rank += atomic_load(&m->key[r]) < c->key;
  }
  c->waits = 0;
  formed[c->number] = c;
}

ncclResult_t ncclCommInitRankConfig(
    ncclComm_t *ret, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  if (ranks > RANKS || config->blocking) return ncclInvalidUsage;
  int file = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(shared))) return ncclSystemError;
  shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  if (s == MAP_FAILED) return ncclSystemError;
  ncclComm_t c = *ret = calloc(1, sizeof *c);
  *c = (struct ncclComm){.shared = s, .color = 0, .key = rank};
  come(c, 0, rank, ranks);
  /* Nobody comes any more when all have. */
  while (rank == 0 && atomic_load(&s->rendezvous_of[0].came) < ranks) rest();
  if (rank == 0) shm_unlink(id.internal);
  return ncclInProgress;
}

ncclResult_t
ncclCommSplit(ncclComm_t world, int color, int key, ncclComm_t *ret, ncclConfig_t *config) {
  if (world->world || world->waits || config->blocking || world->splits + 1 >= COMMS)
    return ncclInvalidUsage;
  ncclComm_t c = calloc(1, sizeof *c);
  *c = (struct ncclComm){.shared = world->shared, .world = world, .color = color, .key = key};
  come(c, ++world->splits, world->rank, world->ranks);
  *ret = color == NCCL_SPLIT_NOCOLOR ? NULL : c;
  if (!*ret) free(c);
  return ncclInProgress;
}

/* ---- messages ---- */

typedef struct {
  ncclComm_t comm;
  int peer;
  char *to; /* NULL: it sends */
  const char *from;
  size_t left;
} message;

/* A sum of all ranks: `all` is what each has, of which `out` gets `count` elements from `first`
 * on. */
typedef struct {
  char *all;
  void *out;
  const void *in;
  size_t elements, first, count;
  ncclDataType_t type;
} sum_of;

/* What a stream is given: the messages of one communicator in a group, and a sum of them. One that
 * was captured has a copy of itself while its graph runs. */
typedef struct group {
  ncclComm_t comm;
  sum_of sum; /* without `all` there is none */
  bool has_begun, captured;
  struct group *copy;
  int count;
  message messages[];
} group;

static message queue[QUEUE];
static cudaStream_t streams[QUEUE];
static int queued, depth, groups;
static ncclResult_t ended;

static long fault(const char *what) {
  const char *text = getenv("EMULATED_NCCL");
  size_t length = strlen(what);
  return text && !strncmp(text, what, length) && text[length] == '@' ? atol(text + length + 1) : 0;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* As many bytes as are there, or have room. */
static size_t step(message *m) {
  ncclComm_t c = m->comm;
  int self = c->world_of[c->rank], peer = c->world_of[m->peer];
  pipe_of *p =
      m->to ? &c->shared->pipes[c->number][peer][self] : &c->shared->pipes[c->number][self][peer];
  uint64_t written = atomic_load(&p->written), read = atomic_load(&p->read);
  uint64_t at = (m->to ? read : written) % ROOM;
  size_t n = least(m->left, m->to ? written - read : ROOM - (written - read));
  n = least(n, ROOM - at);
  if (m->to) memcpy(m->to, p->bytes + at, n), m->to += n;
  else memcpy(p->bytes + at, m->from, n), m->from += n;
  atomic_fetch_add(m->to ? &p->read : &p->written, n);
  m->left -= n;
  return n;
}

static bool is_behind(const group *g, int i) {
  const message *m = &g->messages[i];
  for (const message *k = g->messages; k < m; k++)
    if (k->left && k->peer == m->peer && !k->to == !m->to) return true;
  return false;
}

static size_t size_of(ncclDataType_t type) {
  return type == ncclFloat32 ? 4 : type == ncclBfloat16 || type == ncclFloat16 ? 2 : 1;
}
static size_t bytes_of(const sum_of *s) { return s->elements * size_of(s->type); }

/* Of fp16 normal numbers alone. */
static float read_number(ncclDataType_t type, const void *x, size_t i) {
  float number = 0;
  if (type == ncclFloat32) return ((const float *)x)[i];
  uint32_t bits = ((const uint16_t *)x)[i], sign = (bits & 0x8000) << 16, size = bits & 0x7fff;
  if (type == ncclBfloat16) bits <<= 16;
  else bits = sign | (size < 0x400 ? 0 : (size << 13) + ((127 - 15) << 23));
  memcpy(&number, &bits, sizeof number);
  return number;
}

static void write_number(ncclDataType_t type, void *x, size_t i, float number) {
  uint32_t bits;
  if (type == ncclFloat32) {
    ((float *)x)[i] = number;
    return;
  }
  memcpy(&bits, &number, sizeof bits);
  uint32_t sign = bits >> 16 & 0x8000, shift = type == ncclBfloat16 ? 16 : 13;
  bits = (bits & 0x7fffffff) + (1u << (shift - 1)) - 1 + (bits >> shift & 1);
  bits >>= shift;
  if (type == ncclFloat16) bits = bits < (113u << 10) ? 0 : bits - ((127 - 15) << 10);
  ((uint16_t *)x)[i] = (uint16_t)(sign | bits);
}

/* From the last rank to the first: an order that is not ours. */
static void add_ranks(const group *g) {
  const sum_of *s = &g->sum;
  for (size_t i = 0; i < s->count; i++) {
    float sum = 0;
    for (int r = g->comm->ranks; r-- > 0;)
      sum += read_number(s->type, s->all + (size_t)r * bytes_of(s), s->first + i);
    write_number(s->type, s->out, i, sum);
  }
}

static void *copied(const void *of, size_t bytes) {
  void *copy = malloc(bytes);
  return memcpy(copy, of, bytes);
}

static bool run_group(void *context, bool *ret_moved);

static bool run_captured(void *context, bool *ret_moved) {
  group *g = context;
  if (!g->copy) {
    g->copy = copied(g, sizeof *g + (size_t)g->count * sizeof *g->messages);
    if (g->sum.all) {
      char *from = g->sum.all, *to = copied(from, (size_t)g->comm->ranks * bytes_of(&g->sum));
      g->copy->sum.all = to;
      for (int i = 0; i < g->count; i++) {
        message *m = &g->copy->messages[i];
        if (m->to) m->to = to + (m->to - from);
        else m->from = to + (m->from - from);
      }
    }
    g->comm->begun++;
  }
  if (!run_group(g->copy, ret_moved)) return false;
  g->copy = NULL;
  return true;
}

static bool end_group(group *g) {
  g->comm->begun--;
  free(g->sum.all);
  free(g);
  return true;
}

static bool run_group(void *context, bool *ret_moved) {
  group *g = context;
  size_t left = 0;
  if (g->comm->aborted) return end_group(g);
  if (!g->has_begun && g->sum.all)
    memcpy(g->sum.all + (size_t)g->comm->rank * bytes_of(&g->sum), g->sum.in, bytes_of(&g->sum));
  g->has_begun = true;
  for (int i = 0; i < g->count; i++) {
    if (g->messages[i].left && !is_behind(g, i)) *ret_moved |= step(&g->messages[i]) > 0;
    left += g->messages[i].left;
  }
  if (left) return false;
  if (g->sum.all) add_ranks(g);
  return end_group(g);
}

static bool is_transfer(const group *g) {
  int sends = 0;
  for (int i = 0; i < g->count; i++) sends += !g->messages[i].to;
  return sends == 0 || sends == g->count;
}

static bool has_process(ncclComm_t c, int process) {
  for (int i = 0; i < c->ranks; i++)
    if (c->world_of[i] == process) return true;
  return false;
}

/* Of the communicators that both processes have, both must have begun as many groups. */
static void check_order(ncclComm_t c, int self, int other, int64_t number) {
  const beginning *mine = &c->shared->beginnings[c->number][self][number % KEPT],
                  *theirs = &c->shared->beginnings[c->number][other][number % KEPT];
  if (atomic_load(&theirs->number) != number) return;
  for (int d = 0; d < COMMS; d++) {
    if (!formed[d] || !has_process(formed[d], other) || mine->counts[d] == theirs->counts[d])
      continue;
    fprintf(
        stderr,
        "emulator: processes %d and %d begin group %lld of communicator %d behind %d and %d groups "
        "of communicator %d, so each could wait for the other\n",
        self, other, (long long)number, c->number, mine->counts[d], theirs->counts[d], d);
    abort();
  }
}

static void keep_order(const group *g) {
  ncclComm_t c = g->comm;
  if (is_transfer(g)) return;
  int self = c->world_of[c->rank];
  int64_t number = ++counts[c->number];
  beginning *b = &c->shared->beginnings[c->number][self][number % KEPT];
  memcpy(b->counts, counts, sizeof counts);
  atomic_store(&b->number, number);
  for (int i = 0; i < c->ranks; i++)
    if (i != c->rank) check_order(c, self, c->world_of[i], number);
}

/* Those of one communicator, whose stream is that of the first one. */
static void begin_group(int first, const sum_of *sum) {
  ncclComm_t comm = queue[first].comm;
  group *g = calloc(1, sizeof *g + (size_t)queued * sizeof *g->messages);
  const struct emulated_stream *stream = (const void *)streams[first];
  g->comm = comm;
  if (sum) g->sum = *sum;
  for (int i = first; i < queued; i++) {
    if (queue[i].comm != comm) continue;
    g->messages[g->count++] = queue[i];
    queue[i].comm = NULL;
  }
  keep_order(g);
  g->captured = stream->is_captured(streams[first]);
  if (!g->captured) comm->begun++;
  stream->begin(streams[first], "NCCL's messages", g->captured ? run_captured : run_group, g);
}

static ncclResult_t run_queue(const sum_of *sum) {
  groups++;
  bool hangs = fault("hang") == groups, lost = fault("lost") == groups;
  for (int i = 0; i < queued && !hangs && !lost; i++)
    if (queue[i].comm) begin_group(i, sum);
  queued = 0;
  return ended = hangs ? ncclInProgress : lost ? ncclRemoteError : ncclSuccess;
}

ncclResult_t ncclGroupStart(void) { return depth++, ncclSuccess; }
ncclResult_t ncclGroupEnd(void) { return --depth ? ncclSuccess : run_queue(NULL); }

static ncclResult_t add(message m, cudaStream_t stream) {
  if (queued == QUEUE || m.comm->waits || m.peer == m.comm->rank || !stream)
    return ncclInvalidUsage;
  streams[queued] = stream;
  queue[queued++] = m;
  return depth ? ncclSuccess : run_queue(NULL);
}

ncclResult_t ncclSend(
    const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
    cudaStream_t stream) {
  return add((message){comm, peer, NULL, from, count * size_of(type)}, stream);
}
ncclResult_t ncclRecv(
    void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add((message){comm, peer, to, NULL, count * size_of(type)}, stream);
}

/* ---- sums ---- */

static ncclResult_t sum_ranks(sum_of sum, ncclComm_t comm, cudaStream_t stream) {
  size_t bytes = bytes_of(&sum);
  if (depth || comm->ranks < 2) return ncclInvalidUsage;
  sum.all = malloc((size_t)comm->ranks * bytes);
  depth++;
  for (int r = 0; r < comm->ranks; r++) {
    if (r == comm->rank) continue;
    ncclSend(sum.all + (size_t)comm->rank * bytes, bytes, ncclInt8, r, comm, stream);
    ncclRecv(sum.all + (size_t)r * bytes, bytes, ncclInt8, r, comm, stream);
  }
  depth--;
  return run_queue(&sum);
}

ncclResult_t ncclAllReduce(
    const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
    cudaStream_t stream) {
  (void)op;
  return sum_ranks((sum_of){NULL, out, in, count, 0, count, type}, comm, stream);
}

ncclResult_t ncclReduceScatter(
    const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
    cudaStream_t stream) {
  (void)op;
  size_t all = count * (size_t)comm->ranks, first = count * (size_t)comm->rank;
  return sum_ranks((sum_of){NULL, out, in, all, first, count, type}, comm, stream);
}

/* ---- how it goes ---- */

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *ret) {
  rendezvous *m = &c->shared->rendezvous_of[c->number];
  if (c->waits && atomic_load(&m->came) == c->waits) find_rank(c);
  *ret = c->waits ? ncclInProgress : ended;
  return ncclSuccess;
}
/* What a group that is not done needs is left to it. */
ncclResult_t ncclCommAbort(ncclComm_t c) {
  if (c->begun) return c->aborted = true, ncclSuccess;
  if (!c->world) munmap(c->shared, sizeof *c->shared);
  return free(c), ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t c) { return (void)c, ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t c) { return ncclCommAbort(c); }
