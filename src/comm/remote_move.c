/* all_gather, ring_shift and all_to_all between workers: what a member has for another is a number
 * of rows of the same length, which lie in the order in which they are sent; between two workers
 * they go from the lowest sender to the lowest receiver first, in chunks. Where rows lie one after
 * the other they are sent from the tensor and received into it. What several members of one worker
 * get alike (all_gather) is sent to the first of them. */
#include "base/sequence.h"
#include "comm/remote_internal.h"
#include <assert.h>
#include <string.h>

enum { GRAIN = 64 << 10, WINDOW = TSR_REMOTE_WINDOW };

/* ---- who has what for whom ---- */

static int all_gather_blocks(const tsr_collective *c) { return c->members / c->groups; }

static bool gets(const tsr_collective *c, int from, int to) {
  if (c->op == TSR_OP_ALL_GATHER) return from / all_gather_blocks(c) == to / all_gather_blocks(c);
  if (c->op == TSR_OP_RING_SHIFT) return (int)(((int64_t)from + c->by - to) % c->members) == 0;
  return c->from != c->to || from == to;
}

static void describe_rows(const tsr_collective *c, tsr_remote_move *m) {
  int64_t elements = 1;
  m->rows = 1;
  if (c->op == TSR_OP_RING_SHIFT) elements = tsr_collective_elements(c, 0, c->ndim);
  if (c->op == TSR_OP_ALL_GATHER) {
    m->rows = tsr_collective_elements(c, 0, c->from) * (c->zigzag ? 2 : 1);
    elements =
        tsr_collective_elements(c, c->from, c->ndim) / all_gather_blocks(c) / (c->zigzag ? 2 : 1);
  }
  if (c->op == TSR_OP_ALL_TO_ALL) {
    int last = c->from > c->to ? c->from : c->to, first = c->from + c->to - last;
    m->rows = tsr_collective_elements(c, 0, last) / (first == last ? 1 : c->members);
    elements = tsr_collective_elements(c, last, c->ndim) / c->members;
  }
  m->run = elements * c->element;
  m->packs_out = m->rows > 1 && c->op == TSR_OP_ALL_TO_ALL;
  m->packs_in = m->rows > 1;
}

/* Where a row of what `from` has for `to` begins, in bytes, in the sender's tensor (received: in
 * the receiver's) for all_to_all. There a tensor has a part of one dimension and the whole of the
 * other, in which the rows are those of the other member. */
static int64_t
find_all_to_all_row(const tsr_collective *c, int from, int to, int64_t row, bool received) {
  int split = received ? c->to : c->from, other = received ? c->from : c->to;
  int last = c->from > c->to ? c->from : c->to;
  int64_t at = 0, scale = tsr_collective_elements(c, last, c->ndim);
  if (split == last) scale /= c->members;
  if (other == last && other != split) at += scale / c->members * (received ? from : to);
  for (int d = last - 1; d >= 0; d--) {
    bool parted = d == c->from || d == c->to;
    int64_t count = c->shape[d] / (parted ? c->members : 1), index = row % count;
    row /= count;
    if (d == other) index += count * (received ? from : to);
    at += index * scale;
    scale *= d == split ? count : c->shape[d];
  }
  return at * c->element;
}

static int64_t find_row(const tsr_remote *r, int from, int to, int64_t row, bool received) {
  const tsr_collective *c = &r->c;
  if (c->op == TSR_OP_ALL_TO_ALL) return find_all_to_all_row(c, from, to, row, received);
  if (c->op == TSR_OP_RING_SHIFT || !received) return row * r->move.run;
  int blocks = all_gather_blocks(c), runs = c->zigzag ? 2 : 1;
  int64_t run = r->move.run / c->element, part = run * runs;
  int64_t at = tsr_sequence_position(c->zigzag, blocks, from % blocks, part, row % runs * run);
  return (row / runs * part * blocks + at) * c->element;
}

/* ---- copies ---- */

/* Bytes [begin, end) of what `from` has for `to`; packed ends are pointers to byte `begin`. */
typedef struct {
  const tsr_remote *r;
  int from, to;
  int64_t begin;
  const char *packed_from; /* NULL: the sender's tensor */
  char *packed_to;         /* NULL: the receiver's tensor */
} copying;

static void copy_range(void *context, int64_t begin, int64_t end) {
  const copying *c = context;
  const tsr_collective *whole = &c->r->c;
  int64_t run = c->r->move.run;
  for (int64_t i = begin, n; i < end; i += n) {
    int64_t at = c->begin + i, row = at / run, column = at % run;
    n = run - column < end - i ? run - column : end - i;
    const char *from = c->packed_from ? c->packed_from + i
                                      : (const char *)whole->in[c->from] +
                                            find_row(c->r, c->from, c->to, row, false) + column;
    char *to = c->packed_to
                   ? c->packed_to + i
                   : (char *)whole->out[c->to] + find_row(c->r, c->from, c->to, row, true) + column;
    memcpy(to, from, (size_t)n);
  }
}

static void copy(
    const tsr_remote *r, int from, int to, int64_t begin, int64_t end, const char *packed_from,
    char *packed_to) {
  copying c = {r, from, to, begin, packed_from, packed_to};
  tsr_remote_spread(r, copy_range, &c, end - begin, GRAIN);
}

static void copy_local(const tsr_remote *r) {
  int64_t bytes = r->move.rows * r->move.run;
  for (int from = 0; from < r->c.members; from++)
    for (int to = 0; r->host[from] == r->me && to < r->c.members; to++)
      if (r->host[to] == r->me && gets(&r->c, from, to)) copy(r, from, to, 0, bytes, NULL, NULL);
}

/* ---- memory ---- */

static void lay_out(tsr_remote *r, tsr_remote_memory *memory) {
  tsr_remote_move *m = &r->move;
  int workers = r->workers_count;
  describe_rows(&r->c, m);
  int64_t bytes = m->rows * m->run;
  m->chunk = tsr_remote_chunk_bytes(2 * WINDOW * (int64_t)workers);
  if (m->chunk > bytes) m->chunk = bytes;
  if (m->run > 0 && m->run <= m->chunk) m->chunk -= m->chunk % m->run; /* whole rows */
  m->leads = TSR_REMOTE_TAKE(memory, bool, r->c.members);
  m->out = TSR_REMOTE_TAKE(memory, tsr_remote_stream, workers);
  m->in = TSR_REMOTE_TAKE(memory, tsr_remote_stream, workers);
  int64_t staging = WINDOW * m->chunk * (workers - 1);
  m->staging_out = tsr_remote_take(memory, m->packs_out ? staging : 0);
  m->staging_in = tsr_remote_take(memory, m->packs_in ? staging : 0);
  r->messages_count = 2 * WINDOW * (workers - 1);
}

static bool is_flow(const tsr_remote *r, int from, int to, int sender, int receiver) {
  return r->host[from] == sender && r->host[to] == receiver && r->move.leads[to] &&
         gets(&r->c, from, to);
}

/* From the stream's flow on to the first that there is between these two. */
static void find_flow(const tsr_remote *r, tsr_remote_stream *s, int sender, int receiver) {
  while (s->from < r->c.members && !is_flow(r, s->from, s->to, sender, receiver))
    if (r->host[s->from] != sender || ++s->to == r->c.members) s->from++, s->to = 0;
}

static void prepare(tsr_remote *r) {
  tsr_remote_move *m = &r->move;
  int blocks = r->c.op == TSR_OP_ALL_GATHER ? all_gather_blocks(&r->c) : 1;
  for (int i = 0; i < r->c.members; i++) {
    m->leads[i] = true;
    for (int other = i / blocks * blocks; other < i; other++)
      if (r->host[other] == r->host[i]) m->leads[i] = false;
  }
  for (int h = 0; h < r->workers_count; h++) {
    int64_t place = h < r->me ? h : h - 1; /* among the others */
    int first = h == r->me || m->rows * m->run == 0 ? r->c.members : 0;
    m->out[h] = (tsr_remote_stream){.from = first};
    m->in[h] = (tsr_remote_stream){.from = first};
    if (h == r->me) continue;
    if (m->packs_out) m->out[h].staging = m->staging_out + place * WINDOW * m->chunk;
    if (m->packs_in) m->in[h].staging = m->staging_in + place * WINDOW * m->chunk;
    find_flow(r, &m->out[h], r->me, h);
    find_flow(r, &m->in[h], h, r->me);
  }
}

/* ---- messages ---- */

/* Where bytes [begin, end) lie in the tensor, or NULL if not one after the other. */
static char *find_whole(const tsr_remote *r, const tsr_remote_flow *f, bool received) {
  int64_t run = r->move.run, row = f->begin / run;
  bool packs = received ? r->move.packs_in : r->move.packs_out;
  if (packs && (f->end - 1) / run != row) return NULL;
  float *tensor = received ? r->c.out[f->to] : r->c.in[f->from];
  return (char *)tensor + find_row(r, f->from, f->to, row, received) + f->begin % run;
}

static bool begin_chunk(tsr_remote *r, int host, bool receives) {
  tsr_remote_stream *s = receives ? &r->move.in[host] : &r->move.out[host];
  int place = (s->head + s->count) % WINDOW;
  int64_t bytes = r->move.rows * r->move.run;
  tsr_remote_flow *f = &s->window[place];
  *f = (tsr_remote_flow){s->from, s->to, s->at, s->at + r->move.chunk, 0};
  if (f->end > bytes) f->end = bytes;
  char *address = find_whole(r, f, receives);
  if (!address) {
    address = s->staging + place * r->move.chunk;
    if (!receives) copy(r, f->from, f->to, f->begin, f->end, NULL, address);
  }
  s->count++;
  s->at = f->end;
  if (s->at == bytes) {
    s->at = 0;
    if (++s->to == r->c.members) s->from++, s->to = 0;
    find_flow(r, s, receives ? host : r->me, receives ? r->me : host);
  }
  return tsr_remote_post(r, receives, host, address, f->end - f->begin, &f->left);
}

/* What came, for all members of this worker that get it. */
static void end_chunk(const tsr_remote *r, tsr_remote_stream *s) {
  const tsr_remote_flow *f = &s->window[s->head];
  char *whole = find_whole(r, f, true), *came = whole;
  if (!came) came = s->staging + s->head * r->move.chunk;
  for (int to = 0; to < r->c.members; to++) {
    bool same = to == f->to || (r->c.op == TSR_OP_ALL_GATHER && gets(&r->c, f->from, to));
    if (!same || r->host[to] != r->me || (whole && to == f->to)) continue;
    copy(r, f->from, to, f->begin, f->end, came, NULL);
  }
}

static bool go_on_stream(tsr_remote *r, int host, bool receives) {
  tsr_remote_stream *s = receives ? &r->move.in[host] : &r->move.out[host];
  bool any = false;
  for (; s->count && !s->window[s->head].left; any = true) {
    if (receives) end_chunk(r, s);
    s->head = (s->head + 1) % WINDOW;
    s->count--;
  }
  for (; s->count < WINDOW && s->from < r->c.members; any = true)
    if (!begin_chunk(r, host, receives)) return false;
  return any;
}

static bool go_on(tsr_remote *r) {
  bool any = false;
  for (int i = 1; i < r->workers_count && r->state == TSR_REMOTE_PENDING; i++) {
    int to = (r->me + i) % r->workers_count;
    int from = (r->me + r->workers_count - i) % r->workers_count;
    any = go_on_stream(r, from, true) || any;
    if (r->state == TSR_REMOTE_PENDING) any = go_on_stream(r, to, false) || any;
  }
  if (!r->move.local_done) copy_local(r);
  r->move.local_done = true;
  return any;
}

static bool is_done(const tsr_remote *r) {
  bool done = true;
  for (int h = 0; h < r->workers_count; h++)
    done = done && !r->move.out[h].count && !r->move.in[h].count &&
           r->move.out[h].from == r->c.members && r->move.in[h].from == r->c.members;
  return done;
}

const tsr_remote_kind tsr_remote_moves = {lay_out, prepare, go_on, is_done};
