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
  int worker; /* the other one, as the transport counts */
  bool receives;
  int *left; /* of the messages that are begun together: those that are not done */
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
} tsr_remote_part;

/* Elements [begin, end) of a slice, which one worker adds, in chunks; round `first` and so on. */
typedef struct {
  int slice;
  int64_t begin, end;
  int first;
} tsr_remote_piece;

/* One round: every worker's chunk of that number. */
typedef struct {
  int sends, receives; /* summands that are under way */
  bool adding;         /* they are not added yet */
  int round;           /* whose summands they are */
  int results;         /* sums that are under way, both ways */
  int copying;         /* the round whose sums they are; -1: none */
} tsr_remote_slot;

typedef struct {
  int slices;   /* 1, or as many as reduce_scatter cuts the tensor into */
  int64_t rows; /* a slice is `rows` runs of `run` elements, `whole` apart in the tensor */
  int64_t run, whole;
  int64_t chunk; /* elements */
  int *length;   /* per member: members of the part that begins there */
  int own_count; /* of the parts: this worker's */
  tsr_remote_part *own;
  int away_count; /* of the parts: the other workers' */
  int *away;      /* their workers */
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

struct tsr_remote {
  tsr_remote_call call;
  tsr_collective c;
  int workers_count, me;
  int *workers; /* those that host a member, by the first that they host */
  int *host;    /* per member: index in workers */
  tsr_remote_state state;
  int messages_count, active;
  tsr_remote_message *messages;
  int *order; /* of messages: first the active ones, then free ones */
  char why[TSR_WHY_BYTES + 64];
  union {
    tsr_remote_sum sum;
    tsr_remote_move move;
  };
};

bool tsr_remote_adds(const tsr_collective *c);
/* Of dimensions [begin, end). */
int64_t tsr_remote_product(const tsr_collective *c, int begin, int end);
/* A chunk's bytes when there is room for `chunks` of them. */
int64_t tsr_remote_chunk_bytes(int64_t chunks);

/* Begins a message with worker `host` (index); *left counts it until it is done. */
bool tsr_remote_post(
    tsr_remote *r, bool receives, int host, void *address, int64_t bytes, int *left);
/* body(context, begin, end) over all of [0, count), on as many threads as are worth it. */
void tsr_remote_spread(
    const tsr_remote *r, void (*body)(void *context, int64_t begin, int64_t end), void *context,
    int64_t count, int64_t count_of_thread_min);

/* lay_out takes the memory (twice: once to count it); prepare fills it. go_on does what can be done
 * and says whether it did anything, or fails, which is in r->state; done: nothing is left. */
void tsr_remote_sum_lay_out(tsr_remote *r, tsr_remote_memory *memory);
void tsr_remote_sum_prepare(tsr_remote *r);
bool tsr_remote_sum_go_on(tsr_remote *r);
bool tsr_remote_sum_done(const tsr_remote *r);
void tsr_remote_move_lay_out(tsr_remote *r, tsr_remote_memory *memory);
void tsr_remote_move_prepare(tsr_remote *r);
bool tsr_remote_move_go_on(tsr_remote *r);
bool tsr_remote_move_done(const tsr_remote *r);

#endif
