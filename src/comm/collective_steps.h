// SPDX-License-Identifier: Apache-2.0
/* What a process does in a collective: a list of steps, which an algorithm (algorithm.h) makes
 * before the first step of training, and which an engine runs again and again.
 *
 * A step moves or adds the elements [begin, end) of a slice. Large slices go in chunks: round
 * `first` has the first chunk, the next round the next one, so the length of a list does not depend
 * on the size of a tensor. Steps are in phases. An ordered phase has all messages; ordered phases
 * of all rounds are begun in one sequence, the same on every process: time t begins round t - lag
 * of each of them, in their order. A message's two ends are in the same phase, and messages from
 * one process to another have the same order in the sender's steps and in the receiver's. A local
 * phase only adds and copies, and runs as soon as what it waits for is done.
 *
 * Staging memory is `places` chunks for each round in flight. What a round has put there may be
 * sent by a later one. */
#ifndef TSR_COMM_COLLECTIVE_STEPS_H
#define TSR_COMM_COLLECTIVE_STEPS_H
#include "base/arena.h"
#include "comm/collective.h"
#include "comm/view.h"

enum { TSR_PHASES_MAX = 8, TSR_ROUNDS_IN_FLIGHT = 4 };

typedef enum {
  TSR_STEP_SEND,
  TSR_STEP_RECEIVE,
  TSR_STEP_REDUCE,     /* targets = the operands' sum, in the order of their merges; `onto`: the
                          first target's content is the first summand */
  TSR_STEP_COPY,       /* targets = the operand */
  TSR_STEP_VENDOR_SUM, /* target = the sum of all processes' operands, by their library */
  TSR_STEP_VENDOR_SUM_SLICES /* target = this process's slice of that sum */
} tsr_step_kind;

typedef enum { TSR_BUFFER_IN, TSR_BUFFER_OUT, TSR_BUFFER_STAGING } tsr_buffer;

typedef struct {
  uint8_t buffer; /* tsr_buffer */
  uint8_t merges; /* of a reduction: additions after this operand, as tsr_collective_merges */
  int index;      /* the member; of staging: the place */
  int via;        /* the place that stands for a chunk in pieces, which no message can have; -1 */
  int rounds_before; /* of staging that is sent: the round that wrote it, so many before */
} tsr_operand;

typedef struct {
  uint8_t kind;       /* tsr_step_kind */
  bool whole;         /* without chunks; nothing of it is in staging, or there is one round */
  bool onto;          /* of a reduction */
  bool of_host;       /* received: made of what several processes of the sender's host have */
  int peer;           /* of a message: index in the layout's processes */
  int first;          /* round of the first chunk */
  int64_t begin, end; /* elements */
  int from, from_count, to, to_count; /* operands and targets, in the list's `operands` */
  int from_view, to_view;             /* of members' buffers, in the list's `views` */
  int64_t from_at, to_at;             /* where the slice begins there, in elements */
} tsr_step;

/* Bits of phases that have to be done. */
#define TSR_RECEIVED(phase) (UINT32_C(1) << (2 * (phase)))
#define TSR_SENT(phase) (UINT32_C(2) << (2 * (phase)))
#define TSR_DONE(phase) (UINT32_C(3) << (2 * (phase)))

typedef struct {
  bool local;
  int lag;                /* ordered: rounds behind the sequence */
  uint32_t after;         /* of the same round */
  uint32_t after_half;    /* of the round TSR_ROUNDS_IN_FLIGHT / 2 before */
  uint32_t after_earlier; /* of the round that had the same staging before */
  int begin, end;         /* steps, by rising `first` */
} tsr_phase;

typedef struct tsr_step_list {
  int64_t element;     /* bytes */
  tsr_dtype dtype;     /* of sums */
  int64_t chunk;       /* elements */
  int64_t place_bytes; /* from a chunk in staging to the next; 0: chosen when the list is made */
  int rounds, places, phases_count;
  int messages;          /* in flight at once, at most */
  int messages_of_phase; /* of one phase and round, at most */
  bool begins_at_once; /* a library's collectives begin in one order everywhere: when they are begun
                        */
  tsr_phase phases[TSR_PHASES_MAX];
  tsr_step *steps;
  tsr_operand *operands;
  tsr_view *views;
  int *counts; /* of VENDOR_SUM_SLICES: elements of each process of the group, ascending */
} tsr_step_list;

static inline int tsr_step_rounds(const tsr_step_list *l, const tsr_step *s) {
  if (s->whole) return 1;
  return (int)((s->end - s->begin + l->chunk - 1) / l->chunk);
}
/* The elements of a round; false: it has none. */
static inline bool tsr_step_range(
    const tsr_step_list *l, const tsr_step *s, int round, int64_t *ret_begin, int64_t *ret_end) {
  int64_t begin = s->begin + (round - s->first) * l->chunk;
  if (round < s->first || round >= s->first + tsr_step_rounds(l, s)) return false;
  int64_t end = s->whole ? s->end : begin + l->chunk;
  *ret_begin = begin;
  *ret_end = end < s->end ? end : s->end;
  return true;
}
static inline int64_t tsr_step_list_staging_bytes(const tsr_step_list *l) {
  int rounds = l->rounds < TSR_ROUNDS_IN_FLIGHT ? l->rounds : TSR_ROUNDS_IN_FLIGHT;
  return rounds * l->places * l->place_bytes;
}

/* ---- making a list ---- */

typedef struct {
  tsr_arena *scratch;
  tsr_step_list list;
  tsr_step *steps[TSR_PHASES_MAX];
  int steps_count[TSR_PHASES_MAX], steps_room[TSR_PHASES_MAX];
  int operands_count, operands_room, views_count, views_room;
} tsr_list_builder;

void tsr_list_begin(tsr_list_builder *builder, const tsr_collective *collective);
/* These return where in the list it is. */
int tsr_list_add_view(tsr_list_builder *builder, tsr_view view);
int tsr_list_add_operand(tsr_list_builder *builder, tsr_operand operand);
/* Nothing, where the step has no elements. */
void tsr_list_add_step(tsr_list_builder *builder, int phase, tsr_step step);
/* Counts rounds and messages; frees the builder's memory. */
const tsr_step_list *tsr_list_end(tsr_list_builder *builder, tsr_arena *arena);

/* ---- running a list: which phase of which round is next ---- */

typedef struct {
  const tsr_step_list *list;
  int position;              /* in the sequence of ordered phases */
  int next[TSR_PHASES_MAX];  /* per phase: the round that begins next */
  int steps[TSR_PHASES_MAX]; /* per phase: the first step that is not over */
  struct {
    int receiving, sending; /* messages in flight */
  } in_flight[TSR_PHASES_MAX][TSR_ROUNDS_IN_FLIGHT];
} tsr_sequence;

void tsr_sequence_begin(tsr_sequence *sequence, const tsr_step_list *list);
/* Takes the next phase and round that can begin; false: all others wait for messages. */
bool tsr_sequence_next(tsr_sequence *sequence, int *ret_phase, int *ret_round);
/* The phase's next step that has elements in the round, from *step (0 at first) on; NULL: none. */
const tsr_step *tsr_sequence_step(
    tsr_sequence *sequence, int phase, int round, int *step, int64_t *ret_begin, int64_t *ret_end);
/* Whether all has begun. */
bool tsr_sequence_is_over(const tsr_sequence *sequence);

#endif
