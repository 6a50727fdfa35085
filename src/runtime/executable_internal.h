// SPDX-License-Identifier: Apache-2.0
/* Inside the runtime: the structs of an executable and its ranks, and what its files give each
 * other. process.h is what others use. */
#ifndef TSR_RUNTIME_EXECUTABLE_INTERNAL_H
#define TSR_RUNTIME_EXECUTABLE_INTERNAL_H
#include "comm/peers.h"
#include "comm/engine_device.h"
#include "comm/engine_transport.h"
#include "device/host_access.h"
#include "runtime/collective_digests.h"
#include "runtime/device_communicators.h"
#include "runtime/recorder.h"

struct tsr_process {
  tsr_process_options options;
  const tsr_device *host;   /* the CPU */
  const tsr_device *device; /* where ranks compute: options.device, or the host */
  tsr_pool *pool;           /* of the host */
  tsr_executable *executable;
  int executables_count;
  int64_t bytes;
  float **in, **out; /* a collective's members' buffers */
  int *process_of;   /* the same members' */
  char *staging;     /* for collectives that other processes take part in */
  struct tsr_shared_memory
      *shared;      /* per rank: its WORK, until it is mapped; NULL: none is shared */
  char **host_work; /* per rank: the host's WORK, where the device has memory of its own */
  struct tsr_block {
    void *memory;
    int64_t bytes;
    const tsr_device *device; /* NULL: the memory is a mapped file, or shared */
    bool on_host;             /* it is the host's, for a device's copies */
  } * blocks;                 /* what was allocated */
  int blocks_count;
};

/* What a value that goes from one stage to another has done for each microbatch. */
typedef struct {
  bool sent, received; /* here */
  tsr_message *out; /* per rank of the sending stage here: to another process; NULL: all are here */
  tsr_message *in;  /* per rank of the receiving stage here */
  bool *out_waits, *in_waits; /* of these: under way */
  bool begun;                 /* receiving */
  int64_t since;              /* the recorder's time of that */
  char *out_host,
      *in_host; /* the host's copies of these ranks' parts, one after the other; NULL: it
                               has their memory, or a communicator moves them */
} tsr_transfer;

/* How a collective among a group of ranks is carried out. */
typedef struct {
  const tsr_step_list *lists[2]; /* the second one where the collective is `onto` something */
  const tsr_layout *layout;
} tsr_group_plan;

/* A collective in flight that other processes take part in. */
typedef struct {
  int node; /* -1: none */
  tsr_pending **calls;
  int *firsts; /* of each: its group's first member */
  int count;
  int64_t since; /* the recorder's time when they began */
  char *staging; /* of the process's */
  int64_t bytes; /* of it */
} tsr_pending_task;

/* A task of a stage that is under way. */
typedef struct {
  tsr_executable *executable;
  const tsr_program *program;
  const int *ranks; /* of the stage, here */
  const tsr_task *task;
  tsr_step_context at;
} tsr_task_at;

/* A stage's overlapped collectives (tasks of buckets) that have begun, in a ring; one is in flight
 * at a time, so that they begin in the same order on all processes and need the memory of one. */
typedef struct {
  tsr_task_at *begun;
  int first, count, room;
  tsr_pending_task in_flight; /* begun[first], unless its node is -1 */
} tsr_background;

/* Where a step's inputs come from; `fill` NULL: random numbers. */
typedef struct {
  int64_t step;
  tsr_fill_row *fill;
  void *context;
} tsr_input_source;

/* Inputs for a device, in memory of the host: two sets, of which one is read in a step
 * (inputs.c). */
typedef struct {
  char *memory[2];
  int64_t *at, *each;    /* per rank: where its inputs are, and how many bytes a microbatch has */
  int set;               /* of the step that is under way */
  int64_t filled;        /* the step that the other one has been filled for; -1 */
  tsr_input_source next; /* which it may be filled for */
} tsr_staged;

/* What a program needs of a device communicator. */
typedef struct {
  int64_t bytes; /* on the device, for one collective at a time */
  char *memory;
  int messages; /* at once */
  tsr_device_message *room;
  bool transfers; /* it takes those of its two stages */
  bool *begun;    /* per bucket: it has collectives of that, which are not waited for yet */
} tsr_communicator_use;

/* Where a stage is in its step. */
typedef struct {
  int run, task; /* of the program's lists */
  int waits_in;  /* the node of a collective over pp that it waits in, or -1 */
} tsr_stage_at;

/* Where a process was when its time was over, as it tells the others. */
enum { TSR_ANSWER_STAGES = 8, TSR_ANSWER_BYTES = 256, TSR_FAILURE_REPORT_BYTES = 1 << 16 };
typedef struct {
  int stage, node, microbatch;
} tsr_answer_at;
typedef struct {
  int64_t step;
  int count;
  tsr_answer_at at[TSR_ANSWER_STAGES]; /* the first of its stages that wait */
  char text[TSR_ANSWER_BYTES];
} tsr_answer;
/* Of another process, while a report is made; of this one, what it answers. */
typedef struct {
  tsr_answer answer;
  tsr_message in, out;
  bool asked, came; /* the answer is in flight; has arrived */
} tsr_report;

struct tsr_executable {
  tsr_process *process;
  const tsr_programs *programs;
  tsr_rank_memory *ranks;
  tsr_rank_memory *on_host;   /* the same, with the host's WORK */
  int **ranks_of_stage;       /* per stage: those of its ranks that are here, ascending */
  int *ranks_count;           /* of each */
  int ranks_most;             /* of any */
  tsr_group_plan ***plans;    /* per stage and task of a collective: of its groups here, in order */
  tsr_pending_task *pending;  /* per stage, and the last for collectives over pp */
  tsr_background *background; /* per stage; NULL: collectives of buckets end where they begin */
  int *param_values;          /* per parameter: its value */
  tsr_transfer **transfers;   /* per node: of a receive node its microbatches, else NULL */
  tsr_communicator_use
      *communicator_uses;  /* per communicator of the rank map; NULL: there are none */
  tsr_stage_at *at;        /* per stage */
  char **rows;             /* per rank: a sample's row of an input that cp splits, whole */
  int64_t step;            /* that is under way */
  int64_t steps_done;      /* with other processes: the last one's number, from 1 */
  tsr_report *reports;     /* per process */
  char *failure_report;    /* room for what is said when others are lost */
  tsr_device_copy *copies; /* room for one of each rank */
  int *running;            /* room for the ranks of a stage that run a task */
  struct tsr_replicated **replicated; /* per stage; NULL: every rank computes its tasks */
  tsr_device_view *views; /* per rank: of its part of the value that the host reads or writes */
  struct tsr_part_holders *holders; /* of the value that was last asked for */
  tsr_staged *staged;               /* NULL: the device's memory is the host's */
  void *graphs[2];                  /* captured steps, for each set of inputs */
  bool uncapturable;
  char capture_note[TSR_DEVICE_WHY_BYTES]; /* why steps are not captured; "": no reason is told */
  bool capture_noted;
  int64_t device_steps;  /* that could have been captured */
  bool *scaled;          /* per node: whether it gives f16 numbers made of the scaled loss */
  tsr_f16_losses losses; /* of those, here, since they were asked for */
  bool chooses_experts;
  struct tsr_routing_record *routing; /* NULL: it is not recorded */
  _Atomic uint64_t nan_scores;        /* here, since they were asked for (tsr_nan_place) */
  tsr_collective_digests *digests;    /* NULL: none are wanted */
  struct tsr_weight_hashes *hashes;   /* NULL: updates are not hashed */
  struct tsr_value_trace *trace;      /* NULL: tensors are not traced */
  tsr_recorder *recorder;             /* NULL: none */
  tsr_recorder *recording;            /* the same in a step that is recorded, else NULL */
};

static inline const tsr_program *
tsr_executable_program(const tsr_executable *executable, int rank) {
  return executable->programs->of_stage[executable->ranks[rank].coord[TSR_PP]];
}
static inline const tsr_rank_map *tsr_executable_rank_map(const tsr_executable *executable) {
  return &executable->process->options.rank_map;
}
static inline bool tsr_executable_is_alone(const tsr_executable *executable) {
  return tsr_executable_rank_map(executable)->processes <= 1;
}
static inline bool tsr_executable_is_here(const tsr_executable *executable, int rank) {
  const tsr_rank_map *h = tsr_executable_rank_map(executable);
  return tsr_rank_map_process(h, rank) == h->process;
}
/* Whether the rank holds (a part of) the value, wherever it is; and here. */
static inline bool tsr_executable_holds(const tsr_executable *executable, int value, int rank) {
  const tsr_program *p = tsr_executable_program(executable, rank);
  return p->tensors[value].segment != TSR_SEGMENT_ABSENT &&
         tsr_program_holds(p, value, executable->ranks[rank].coord);
}
static inline bool tsr_executable_has(const tsr_executable *executable, int value, int rank) {
  return tsr_executable_is_here(executable, rank) && tsr_executable_holds(executable, value, rank);
}

/* The part of a whole tensor that a rank holds. */
tsr_tensor_slice tsr_executable_slice(const tsr_executable *executable, int value, int rank);
static inline void *
tsr_executable_address(const tsr_executable *executable, int value, int rank, int64_t microbatch) {
  const tsr_program *p = tsr_executable_program(executable, rank);
  const tsr_tensor *t = &p->tensors[value];
  return executable->ranks[rank].base[t->segment] + tsr_tensor_offset(p, t, microbatch);
}
/* Whose memory a value's parts are in: optimizer state that is in a file is in the host's. */
static inline const tsr_device *tsr_executable_home(const tsr_executable *executable, int value) {
  const tsr_process *w = executable->process;
  bool in_file =
      executable->programs->graph->values[value].kind == TSR_VALUE_STATE && w->options.state_folder;
  return in_file ? w->host : w->device;
}
/* The host's access to a rank's part (device/host_access.h). */
static inline void *tsr_executable_view(
    const tsr_executable *executable, int value, int rank, int64_t microbatch, int access,
    tsr_device_view *view) {
  return tsr_device_view_open(
      view, tsr_executable_home(executable, value),
      tsr_executable_address(executable, value, rank, microbatch),
      tsr_tensor_bytes(&tsr_executable_program(executable, rank)->tensors[value]), access);
}
/* The place in the whole tensor of index i along a dimension of a rank's part. */
int64_t tsr_executable_position(
    const tsr_executable *executable, const tsr_tensor_slice *slice, int value, int rank, int dim,
    int64_t i);
/* The first rank, wherever it is, that holds the same part as `rank`, which holds one; by the main
 * thread. Those of one value are found together, so calls for one value follow each other. */
int tsr_executable_first_holder(const tsr_executable *executable, int value, int rank);

/* ---- initial_values.c ---- */

/* Gives constants, and parameters where they are asked for, their first numbers: of the ranks here.
 */
void tsr_executable_initialise(tsr_executable *executable, bool parameters);

/* ---- inputs.c ---- */

/* False with `why` (TSR_DEVICE_WHY_BYTES): the host has no memory for a device's inputs. */
bool tsr_inputs_open(tsr_arena *arena, tsr_executable *executable, char *why);
void tsr_inputs_close(tsr_executable *executable);
/* A step begins: fills the inputs that are staged. */
void tsr_inputs_begin(tsr_executable *executable, const tsr_input_source *source);
/* A microbatch's inputs of a stage's ranks: fills them, or has the device copy them from where they
 * are staged. */
void tsr_inputs_supply(
    tsr_executable *executable, int stage, const tsr_run *run, const tsr_input_source *source);
/* Fills the staged inputs of the next step, if they were announced. */
void tsr_inputs_ahead(tsr_executable *executable);
/* The set of staged inputs that the step reads. */
int tsr_inputs_set(const tsr_executable *executable);

/* ---- underflow_counts.c ---- */
void tsr_executable_find_scaled(tsr_arena *arena, tsr_executable *executable);

/* ---- routing_record.c ---- */
struct tsr_routing_record;
/* After a task of choose_experts, for ranks here. */
void tsr_executable_keep_routing(tsr_executable *executable, const tsr_launch *launch);

/* ---- process.c ---- */
/* Zeros in the device's memory, until the process is closed; TSR_PROCESS_BLOCKS times at most. */
enum { TSR_PROCESS_BLOCKS = 2 };
bool tsr_process_allocate(
    tsr_process *process, int64_t bytes, const char *what, char **ret_memory, tsr_diags *diags);

/* ---- shared_work.c ---- */
/* Where the process is one of several on the CPU, its work memory is to be shared. */
void tsr_process_plan_shared_work(tsr_arena *arena, tsr_process *process);
/* NULL: it is not to be shared, or cannot be. */
void *tsr_process_new_shared_work(tsr_process *process, int rank, int64_t bytes);
/* Every process calls it, when its ranks have work memory; `ok`: whether they do. Then ranks on the
 * same host that are another process's have it, too, at the addresses of this one; or none has, and
 * a note says why. */
void tsr_process_share_work(tsr_arena *arena, tsr_process *process, bool ok, tsr_diags *diags);

/* ---- weight_hash.c ---- */
/* Before a step; and what a task gets; NULL: none are wanted of it. */
void tsr_executable_begin_hashes(tsr_executable *executable);
const tsr_update_hashes *
tsr_executable_update_hashes(const tsr_executable *executable, const tsr_task *task);
/* Adds the hash of a part, which is here, to one of two numbers: begins to add it to one in the
 * device's memory, or has added it to the host's. It is the part as it is stored, with its padding.
 */
void tsr_executable_hash_stored(
    const tsr_executable *executable, int value, int rank, uint64_t *on_device, uint64_t *on_host);

/* ---- value_trace.c ---- */
/* Before a step; when a stage's inputs of a run have been filled (at->task is NULL); and after a
 * task. */
void tsr_value_trace_begin(struct tsr_value_trace *trace);
void tsr_value_trace_add_inputs(
    struct tsr_value_trace *trace, const tsr_task_at *at, const tsr_run *run);
void tsr_value_trace_add(struct tsr_value_trace *trace, const tsr_task_at *at);

/* ---- replicated_tasks.c ---- */
struct tsr_replicated;
void tsr_executable_plan_replicated(tsr_arena *arena, tsr_executable *executable);
/* Of a launch for all ranks of a stage here: keeps those that compute it, for the others, too; and,
 * when they have, gives the others what they read of it. */
void tsr_executable_compute_once(const tsr_executable *executable, tsr_launch *launch);
void tsr_executable_copy_replicas(const tsr_executable *executable, const tsr_launch *launch);
/* ---- step_capture.c ---- */
/* Launches a step as a captured graph, which it captures first where there is none: `run` begins
 * all tasks of the step. False: nothing was begun, because the step cannot be captured, or not yet.
 */
typedef void tsr_run_stages(const void *step);
bool tsr_executable_run_captured(tsr_executable *executable, tsr_run_stages *run, const void *step);

/* ---- nan_scores.c ---- */
void tsr_executable_begin_nan_scores(tsr_executable *executable);

/* ---- control_messages.c: between processes, outside programs ---- */

/* What a process waits for, in reports. */
typedef struct {
  const tsr_executable *executable;
  int stage;        /* whose task it is; -1: nothing of a program */
  const char *what; /* else: "waits for a tensor" */
  int node;         /* of the graph, from 1, that it does that for; 0: none */
  const int *peers; /* and from or to whom */
  int peers_count;
  double since; /* 0: the waiting has not begun, or something moved */
  tsr_backoff backoff;
} tsr_waiting;

/* After a round in which nothing moved: gives others time, and watches the clock. */
void tsr_wait_round(tsr_waiting *waiting);
/* A message has failed, with `why`; or NULL: the time is over. Does not return. */
void tsr_wait_lost(const tsr_waiting *waiting, const char *why) __attribute__((noreturn));
/* What is to be said of it. Asks the others where they are, for some seconds at most. */
void tsr_wait_report(const tsr_waiting *waiting, const char *why, tsr_text *text);

/* The least of all processes' numbers, and their sum modulo 2^64, on all of them. */
uint64_t tsr_executable_agree_least(const tsr_executable *executable, uint64_t mine);
uint64_t tsr_executable_agree_sum(const tsr_executable *executable, uint64_t mine);
/* The sums of `count` numbers; `room` has room for as many. */
void tsr_executable_agree_sums(
    const tsr_executable *executable, uint64_t *numbers, uint64_t *room, int count);

/* The same bytes on all processes, from one of them. */
void tsr_executable_broadcast(
    const tsr_executable *executable, int from, void *bytes, int64_t length);
void tsr_executable_send(
    const tsr_executable *executable, int to, const void *bytes, int64_t length);
void tsr_executable_receive(
    const tsr_executable *executable, int from, void *bytes, int64_t length);
/* To be freed; without memory the job ends. */
void *tsr_wait_memory(const tsr_executable *executable, int64_t bytes);

/* ---- collectives.c ---- */

/* The tensor as the collective sees it: whole over its axis; kept units are its first dimension's
 * front. */
void tsr_task_describe(const tsr_task_at *at, tsr_collective *ret_collective);
/* The groups of a collective's task with a member here, in the order of their first members; `next`
 * begins at 0. Fills the process's in, out and process_of; -1: there is no more. */
int tsr_task_next_group(
    const tsr_task_at *at, const tsr_collective *c, int *next, bool *ret_all_here);
/* Of all of a program's collectives, before anything else is planned. */
void tsr_executable_plan_collectives(tsr_arena *arena, tsr_executable *executable);
/* The plans of the task's groups, in the order of tsr_task_next_group. */
const tsr_group_plan *tsr_task_plans(const tsr_task_at *at);

/* ---- collective_digests.c ---- */
void tsr_executable_add_digests(const tsr_task_at *at);

/* ---- host_copies.c: what the host does in a step with tensors of a device that has memory of its
 * own ---- */

/* Whether messages to other processes go through copies in the host's memory. */
bool tsr_executable_messages_by_host(const tsr_executable *executable);
/* Bytes of the host's WORK that a rank's largest task needs. */
int64_t tsr_executable_host_bytes(const tsr_executable *executable, int rank);
/* A task that the host runs, on the launch's ranks: with copies before and behind it. */
void tsr_executable_run_on_host(tsr_executable *executable, const tsr_launch *launch);
/* A collective's buffers of a group that the process has just been given (tsr_task_next_group)
 * become the host's, which have what the members' have; and the members' what the host's have. */
void tsr_collective_to_host(const tsr_task_at *at, const tsr_collective *c, int first);
void tsr_collective_from_host(const tsr_task_at *at, int first);

/* ---- pending_collectives.c ---- */

/* Tags of transfers are in the lower half, of collectives in the upper one. */
enum { TSR_TAGS_HALF = TSR_TRANSPORT_TAGS / 2 };

void tsr_executable_plan_pending(tsr_arena *arena, tsr_executable *executable);
int64_t tsr_executable_staging_bytes(const tsr_executable *executable);
void tsr_executable_place_pending(tsr_executable *executable, char *staging);
/* Whether it is in flight with groups that have members in other processes. */
bool tsr_task_is_pending(const tsr_task_at *at);
/* Begins or advances these; whether all are done. */
bool tsr_task_advance(const tsr_task_at *at);

/* Collectives of buckets among several processes go on while the stage's other tasks run: between
 * two tasks, on the thread that steps the stages. */

/* Begins one of these; false: the task is none, or ends where it begins. */
bool tsr_background_begin(const tsr_task_at *at);
/* Advances those of all stages; whether one has ended. */
bool tsr_background_advance(tsr_executable *executable);
/* Of the wait for a bucket: advances the stage's; whether all of the bucket have ended. */
bool tsr_background_has_ended(const tsr_task_at *at);
/* Whether a collective must not begin before those that have begun are over: where it would have
 * their tag, or a library's sums would begin in another order than elsewhere. */
bool tsr_background_precedes(const tsr_task_at *at);

/* ---- transfers.c: from stage to stage ---- */

void tsr_executable_plan_transfers(tsr_arena *arena, tsr_executable *executable);
/* Gives them copies in the host's memory from `memory` on; NULL: only counts. The bytes. */
int64_t tsr_executable_place_transfers(tsr_executable *executable, char *memory);
/* Of a send, a receive or a wait: the stage that the value is from, and the one that it is for. */
void tsr_task_ends(const tsr_task_at *at, int *ret_from, int *ret_to);

/* Of a send, a receive, a wait: the part of other processes. Begins what is not begun, and asks how
 * far it is; whether it is done. */
bool tsr_task_send(const tsr_task_at *at, int64_t microbatch);
bool tsr_task_receive(const tsr_task_at *at, int64_t microbatch);
bool tsr_task_sent(const tsr_task_at *at, int64_t from, int64_t to);
/* At a step's end: what was sent must have left before its bytes are written again. */
void tsr_executable_finish_messages(tsr_executable *executable);
/* Whether a rank here gets a value of a receive node from a rank here. */
bool tsr_task_is_from_here(const tsr_task_at *at);
bool tsr_task_is_for_here(const tsr_task_at *at);

/* ---- device_communication.c: the same messages from device to device ---- */

void tsr_executable_plan_device_messages(tsr_arena *arena, tsr_executable *executable);
int64_t tsr_executable_device_message_bytes(const tsr_executable *executable);
void tsr_executable_place_device_messages(tsr_executable *executable, char *memory);
/* Begins the collective of the groups with members elsewhere. What comes after it on the tasks'
 * lane waits for it; with a bucket not before tsr_device_wait_for_bucket. */
void tsr_device_begin_collective(const tsr_task_at *at);
void tsr_device_wait_for_bucket(const tsr_task_at *at);
/* Whether a transfer between the two stages goes by a device communicator; then a send, a receive,
 * a wait of it. */
bool tsr_device_has_transfer(const tsr_task_at *at);
/* Whether all transfers of the program go by device communicators. */
bool tsr_device_has_all_transfers(const tsr_executable *executable);
void tsr_device_transfer(const tsr_task_at *at);

#endif
