/* What the files of remote.h's collectives share. Nothing here waits: a collective is a list of
 * messages that are under way and a few counters that say what can be begun next.
 *
 * Messages of two workers go in one order in each direction, and the receiver asks for them in that
 * order; so all that is sent, and in which pieces, is a function of the collective and of who hosts
 * whom, and both sides compute it alike. */
#ifndef TSR_COMM_REMOTE_INTERNAL_H
#define TSR_COMM_REMOTE_INTERNAL_H
#include "comm/remote.h"

enum {
  TSR_REMOTE_WINDOW = 4, /* chunks that are under way at once */
  TSR_REMOTE_CHUNK_BYTES = 512 << 10,
  TSR_REMOTE_CHUNK_BYTES_MIN = 16 << 10,
  TSR_REMOTE_STAGING_BYTES = 32 << 20, /* about; chunks get smaller before it gets more */
};

typedef struct {
  tsr_message handle;
  int worker; /* the other one, as the transport counts; -1: all of them, in a sum of the
                 transport's */
  bool receives;
  bool of_host; /* it is made of what several workers of the sender's host have */
  int *left;    /* of the messages that are begun together: those that are not done */
} tsr_remote_message;

/* Memory that is laid out one after the other; base NULL: it is only counted. */
typedef struct {
  char *base;
  int64_t used;
} tsr_remote_memory;
void *tsr_remote_take(tsr_remote_memory *memory, int64_t bytes);
#define TSR_REMOTE_TAKE(memory, type, count)                                                       \
  ((type *)tsr_remote_take((memory), (int64_t)sizeof(type) * (count)))

/* ---- sums ---- */

/* A summand of the tree: a member's tensor, or what came of a part. */
typedef struct {
  const float *from;
  int merges; /* after it, as tsr_tree_merges */
  bool staged;
} tsr_remote_leaf;

/* Members [begin, end), which one worker has, and whose sum is in the tree. */
typedef struct {
  int begin, end;
  bool joins; /* it is added to others of its host before it leaves the host */
  int packed; /* its place in what is laid out before it is sent; -1: it is sent as it lies */
} tsr_remote_part;

/* A summand that comes for this worker's chunks. */
typedef struct {
  int worker;
  bool joined; /* the worker, on another host, has it from several of that host */
} tsr_remote_away;

/* Summands of one host that are added there, for owners on other hosts. */
typedef struct {
  int leaves_begin, leaves_end; /* of `joined_leaves` */
} tsr_remote_joined;

/* Elements [begin, end) of a slice, which one worker adds, in chunks; round `first` and so on. */
typedef struct {
  int slice;
  int64_t begin, end;
  int first;
} tsr_remote_piece;

/* One round: every worker's chunk of that number. */
typedef struct {
  int sends, receives; /* summands that are under way */
  int joins;           /* receives of those that are added for owners on other hosts */
  bool joining;        /* these are not added yet */
  bool expects;        /* what other hosts add is not asked for yet */
  bool adding;         /* the summands are not added yet */
  int round;           /* whose summands they are */
  int comes;           /* sums that come from their owners */
  int results;         /* other sums that are under way, both ways */
  bool hands;          /* sums are not handed on yet to this host's other workers */
  int copying;         /* the round whose sums they are; -1: none */
} tsr_remote_slot;

typedef struct {
  int slices;   /* 1, or as many as reduce_scatter cuts the tensor into */
  int64_t rows; /* a slice is `rows` runs of `run` elements, `whole` apart in the tensor */
  int64_t run, whole;
  int64_t chunk; /* elements */
  int *length;   /* per member: members of the part that begins there */
  int *span;     /* per member: of the subtree that begins there and is one host's; largest ones */
  int own_count; /* of the parts: this worker's */
  tsr_remote_part *own;
  int away_count; /* what comes for this worker's chunks */
  tsr_remote_away *away;
  int leaves_count;
  tsr_remote_leaf *leaves; /* of the sums that this worker adds */
  tsr_remote_leaf *inside; /* per member: of its part's sum */
  int *pieces_begin;       /* per worker, and one more */
  tsr_remote_piece *pieces;
  int rounds;
  int position;    /* in the order of what is sent, tsr_remote_sum_go_on */
  int packed;      /* own parts whose summands are laid out before they are sent */
  float *outgoing; /* [window][other workers][packed][chunk] */
  float *incoming; /* [window][away][chunk] */
  /* Between hosts only. */
  int *relay;        /* per worker that owns: who adds for it on this host; itself, if it is here */
  int relayed_count; /* owners that this worker adds for */
  int *relayed;
  int joined_count; /* sums that it makes for each */
  tsr_remote_joined *joined;
  tsr_remote_leaf *joined_leaves;
  int mates_count;                           /* summands of others that come for each */
  int *mates;                                /* their workers */
  int relayed_most, joined_most, mates_most; /* that there is room for */
  float *joins;                              /* [window][relayed][mates][chunk] */
  float *sums;                               /* [window][relayed][joined][chunk] */
  tsr_remote_slot slots[TSR_REMOTE_WINDOW];
} tsr_remote_sum;

/* ---- moves ---- */

/* Bytes [begin, end) of what member `from` has for member `to`, under way. */
typedef struct {
  int from, to;
  int64_t begin, end;
  int left;
} tsr_remote_flow;

/* All that goes to one worker, or comes from it. */
typedef struct {
  int from, to; /* the flow that is being begun; from == members: all are */
  int64_t at;   /* bytes of it that are begun */
  int head, count;
  tsr_remote_flow window[TSR_REMOTE_WINDOW];
  char *staging; /* [window][chunk] */
} tsr_remote_stream;

typedef struct {
  int64_t rows, run; /* what goes from a member to another is `rows` runs of `run` bytes */
  bool packs_out, packs_in;
  int64_t chunk;                  /* bytes */
  char *staging_out, *staging_in; /* [other workers][window][chunk], where rows are packed */
  bool *leads;                    /* per member: the first of its worker that gets the same */
  tsr_remote_stream *out, *in;    /* per worker */
  bool local_done;
} tsr_remote_move;

/* ---- sums of the transport's own ---- */

typedef struct {
  int64_t rows, run, whole; /* as in tsr_remote_sum */
  int own_count;            /* members here */
  int *own;
  int *order;              /* of reduce_scatter: the members by the group's workers */
  int *counts;             /* per worker of the group: elements that it gets */
  tsr_remote_leaf *leaves; /* own members, in a tree of their own */
  bool packs;              /* `packed`: what is sent does not lie so in one tensor */
  float *packed, *came;    /* came: the slices of several members here */
  bool ended;
  int left;
} tsr_remote_library;

/* What kinds of collectives do in their own ways. lay_out takes the memory (twice: once to count
 * it); prepare fills it. go_on does what can be done and says whether it did anything, or fails,
 * which is in r->state; done: nothing is left. */
typedef struct {
  void (*lay_out)(tsr_remote *r, tsr_remote_memory *memory);
  void (*prepare)(tsr_remote *r);
  bool (*go_on)(tsr_remote *r);
  bool (*done)(const tsr_remote *r);
} tsr_remote_kind;
extern const tsr_remote_kind tsr_remote_sums, tsr_remote_moves, tsr_remote_library_sums;

/* `host` is who hosts a member; the host that a worker is on is its machine. */
struct tsr_remote {
  tsr_remote_call call;
  tsr_collective c;
  const tsr_remote_kind *kind;
  int workers_count, me;
  int *workers; /* those that host a member, by the first that they host */
  int *first, *last; /* per worker: the first and the last member that it hosts */
  int *host;         /* per member: index in workers */
  int machines_count;
  int mates_count; /* workers on this one's machine, with it */
  int *machine;    /* per worker; NULL where there is one only, as the next two */
  int *position;   /* per worker: among those of its machine */
  int *size;       /* per machine: its workers */
  tsr_remote_state state;
  int messages_count, active;
  tsr_remote_message *messages;
  int *order; /* of messages: first the active ones, then free ones */
  char why[TSR_WHY_BYTES + 64];
  union {
    tsr_remote_sum sum;
    tsr_remote_move move;
    tsr_remote_library library;
  };
};

bool tsr_remote_adds(const tsr_collective *c);
/* A chunk's bytes when there is room for `chunks` of them. */
int64_t tsr_remote_chunk_bytes(int64_t chunks);

/* Begins a message with worker `host` (index); *left counts it until it is done. */
bool tsr_remote_post(
    tsr_remote *r, bool receives, int host, void *address, int64_t bytes, int *left);
/* The place of the next message, which is one when it is counted in `active`. */
tsr_remote_message *tsr_remote_new_message(tsr_remote *r);
static inline tsr_remote_message *tsr_remote_last_message(tsr_remote *r) {
  return &r->messages[r->order[r->active - 1]];
}
/* The message could not begin, or has failed; returns false. */
bool tsr_remote_failed(tsr_remote *r, const tsr_remote_message *m, const char *why);
/* body(context, begin, end) over all of [0, count), on as many threads as are worth it. */
void tsr_remote_spread(
    const tsr_remote *r, void (*body)(void *context, int64_t begin, int64_t end), void *context,
    int64_t count, int64_t count_of_thread_min);

/* out[0..n) = the sum of the leaves, n <= TSR_REMOTE_BLOCK; `at` in a member's tensor, `staged_at`
 * in what came. */
enum { TSR_REMOTE_BLOCK = 1024 };
void tsr_remote_add_leaves(
    const tsr_kernels *k, const tsr_remote_leaf *leaves, int count, int64_t at, int64_t staged_at,
    float *out, int64_t n);

/* ---- remote_plan.c: who adds what of a sum ---- */

void tsr_remote_sum_lay_out(tsr_remote *r, tsr_remote_memory *memory);
void tsr_remote_sum_prepare(tsr_remote *r);
/* A worker's chunk in a round; empty where it has no more. */
tsr_remote_piece tsr_remote_find_chunk(const tsr_remote *r, int host, int round);
/* The first of a worker's members that get the slice, after `before` (-1: of all); -1: none. */
int tsr_remote_next_target(const tsr_remote *r, int host, int slice, int before);
/* Whether `worker` adds on its host for an owner on another one, and gets the sums for all there.
 */
static inline bool tsr_remote_is_relay(const tsr_remote *r, int worker, int owner) {
  return r->position[worker] == r->position[owner] % r->size[r->machine[worker]];
}
static inline int tsr_remote_machine(const tsr_remote_call *call, int worker) {
  return call->hosts ? call->hosts[worker] : 0;
}
static inline bool tsr_remote_shares_host(const tsr_remote *r, int a, int b) {
  return r->machines_count == 1 || r->machine[a] == r->machine[b];
}

#endif
