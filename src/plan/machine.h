// SPDX-License-Identifier: Apache-2.0
/* A machine as the planner sees it: devices that are all alike, and the links between them.
 *
 * What a description (configs/machines/NAME.yaml) holds; quantities as in machine_units.h:
 *
 *   name: h100                        # must be there
 *   doc: NVIDIA H100 SXM              # any text, or absent
 *   transport: nccl                   # of messages between devices: nccl or mpi (absent)
 *   device:
 *     memory: 80GiB
 *     memory_bandwidth: 3.35TB/s
 *     flops: {f32: 67TFLOP/s, tf32: …, bf16: …, fp16: …}   # only f32 must be there
 *     overhead: 5us                   # of each task; 0 when absent
 *     host_bandwidth: 64GB/s          # to the host's memory, and as much back; 32GB/s when absent
 *     threads: 2                      # one host, whose threads do the work of all ranks in turn;
 *                                     # absent: a device for each rank
 *     efficiency: {products: 0.7, attention: 0.5, memory: 0.9} # of the peaks; each 1 when absent
 *   links:                            # levels, from the inside out; absent: one device alone
 *   - {name: nvlink, devices: 8, bandwidth: 450GB/s, latency: 2us, efficiency: 0.8,
 *      within_host: true}             # a descriptor's hosts may have fewer devices; false when
 * absent
 *   - {name: infiniband, bandwidth: 50GB/s, latency: 5us}
 *   rates:                            # measured: they stand in place of the roofline
 *     linear: {flops: 41TFLOP/s, bytes: 2TB/s, call: 1us, overhead: 4us}
 *     linear.bf16: {flops: 600TFLOP/s}
 *
 * A level joins each run of `devices` consecutive devices, those of the levels inside it included;
 * so its count is a multiple of theirs. ~ or none, on the last level: any number. `bandwidth` is
 * what one device sends over the level, while it receives as much; all devices can do so at once. A
 * rate's key is an op of graph/ops.def, alone for every type that has no entry of its own; what its
 * figures say adds up, `call` for each call of a kernel (plan.h) and `overhead` once a task (the
 * device's when it is absent). With `threads` collectives are the host's work and may have rates
 * too. */
#ifndef TSR_PLAN_MACHINE_H
#define TSR_PLAN_MACHINE_H
#include "base/diag.h"
#include "base/text.h"
#include "mesh/mesh.h"
#include <stdint.h>

/* What products compute in. tf32: f32 operands on matrix units that round them. */
typedef enum {
  TSR_MACHINE_F32,
  TSR_MACHINE_TF32,
  TSR_MACHINE_BF16,
  TSR_MACHINE_FP16,
  TSR_MACHINE_DTYPES,
  TSR_MACHINE_EVERY_DTYPE = -1 /* of a rate */
} tsr_machine_dtype;

typedef struct {
  const char *name;
  int64_t devices; /* 0: any number */
  bool within_host;
  double bandwidth, latency, efficiency;
} tsr_machine_link;

typedef struct {
  const char *op;
  int dtype;           /* or TSR_MACHINE_EVERY_DTYPE */
  double flops, bytes; /* per second; 0: they take no time */
  double call;         /* seconds */
  double overhead;     /* < 0: the device's */
} tsr_machine_rate;

/* A part of a rank's number, (rank / stride) % size, and what one of it counts in the number of the
 * rank's device. */
typedef struct {
  int64_t stride, size, step;
} tsr_machine_part;

/* A level of the topology by which paths are named (path.h). */
typedef struct {
  const char *name;
  int64_t devices; /* 0: any number */
  bool within_host;
} tsr_machine_path;

enum { TSR_MACHINE_LINKS_MAX = 8, TSR_MACHINE_PARTS_MAX = 2 * TSR_MESH_DIMS_MAX + 1 };
typedef struct tsr_machine {
  const char *name, *doc; /* doc: "" when there is none */
  bool has_nccl;          /* transport: nccl */
  int64_t memory;         /* bytes */
  double memory_bandwidth;
  double flops[TSR_MACHINE_DTYPES]; /* 0: not given, and f32's holds */
  double overhead;
  double host_bandwidth; /* 0: not given, and tsr_machine_host_rate has the default */
  int threads;           /* 0: a device for each rank */
  double efficiency_products, efficiency_attention, efficiency_memory;
  tsr_machine_link links[TSR_MACHINE_LINKS_MAX];
  int links_count;
  tsr_machine_path paths[TSR_MACHINE_LINKS_MAX]; /* by tsr_machine_choose */
  int paths_count;
  /* How the ranks lie, from the innermost part; none: a rank's device has the rank's number. */
  tsr_machine_part parts[TSR_MACHINE_PARTS_MAX];
  int parts_count;
  tsr_machine_rate *rates;
  int rates_count, rates_capacity;
} tsr_machine;

/* ---- files ---- */

/* The description that a user names: `h100` is SHARE/configs/machines/h100.yaml; what is no shipped
 * name is a path. Else an error that lists the shipped ones. */
bool tsr_machine_find(
    tsr_arena *arena, const char *share_folder, const char *name, tsr_location location,
    const char **ret_path, tsr_diags *diags);
/* The machine of --machine, else the shipped one that the descriptor's name begins with, else the
 * one for devices of that kind: cpu, galaxy for Wormhole, blackhole, else h100. Levels within hosts
 * join no more devices than each of the descriptor's hosts has, which owns a block of the mesh; its
 * devices follow each other in number. *ret_why: what decided. */
bool tsr_machine_choose(
    tsr_arena *arena, const char *share_folder, const char *option, const tsr_mesh *mesh,
    tsr_machine **ret_machine, const char **ret_why, tsr_diags *diags);
/* The names of the shipped machines, sorted, and how many they are. */
int tsr_machine_list(tsr_arena *arena, const char *share_folder, const char ***ret_names);
/* Reports all mistakes of the file in one call; `place`: who asked for it. */
bool tsr_machine_read(
    tsr_arena *arena, const char *path, tsr_location location, tsr_machine **ret_machine,
    tsr_diags *diags);
bool tsr_machine_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_machine **ret_machine,
    tsr_diags *diags);
/* YAML that reads back as the very same machine. */
void tsr_machine_write(const tsr_machine *m, tsr_text *text);
/* A few lines for people. */
void tsr_machine_print(const tsr_machine *m, tsr_text *text);
/* Adds a measured rate, in place of one of the same op and type. */
void tsr_machine_set_rate(tsr_arena *arena, tsr_machine *m, const tsr_machine_rate *rate);

const char *tsr_machine_dtype_name(int dtype);

/* ---- work ---- */

typedef struct {
  double flops, bytes, calls;
} tsr_machine_work;

/* The roofline (Williams, Waterman, Patterson 2009), with overhead:
 *   max(flops / (peak efficiency), bytes / (memory_bandwidth efficiency)) + overhead
 * Products and attention compute in `dtype` with their efficiency; every other op computes at f32's
 * whole peak, since it does not run on matrix units, and is bound by memory in practice. An op with
 * a measured rate takes that: flops / rate + bytes / rate + calls × call + overhead. `op_name`: of
 * graph/ops.def. */
double tsr_machine_task_seconds(
    const tsr_machine *m, const char *op_name, tsr_machine_dtype dtype, tsr_machine_work work);
/* Bytes a second that copies between a device's memory and the host's reach in one direction: of
 * `host_bandwidth`, or of PCIe 4.0 with 16 lanes, the part that is memory's efficiency. */
double tsr_machine_host_rate(const tsr_machine *m);
/* What the products of a type can do at best: the peak. */
double tsr_machine_peak(const tsr_machine *m, tsr_machine_dtype dtype);

/* ---- links ---- */

/* Ranks r + i stride, i < members. Meshes are row-major, so a group lies in an aligned run of
 * members × stride ranks. */
typedef struct {
  int64_t members, stride;
  int64_t ranks; /* of the whole mesh, a multiple of members × stride; 0: just that many */
} tsr_machine_group;

/* The innermost level that joins every such group of the mesh; false when none does. */
bool tsr_machine_level(const tsr_machine *m, tsr_machine_group group, int *ret_level);

typedef enum {
  TSR_MACHINE_ALL_REDUCE,
  TSR_MACHINE_ALL_REDUCE_DIRECTLY,
  TSR_MACHINE_ALL_REDUCE_RING,
  TSR_MACHINE_ALL_GATHER,
  TSR_MACHINE_REDUCE_SCATTER,
  TSR_MACHINE_ALL_TO_ALL,
  TSR_MACHINE_SEND,
  TSR_MACHINE_BROADCAST,
  TSR_MACHINE_REDUCE
} tsr_machine_collective;

/* How long a collective takes, without the device's overhead per task. `bytes`: what one member
 * holds before (the root of a broadcast, the sender of a send): of an all_gather its slice, of a
 * reduce_scatter the whole. A send goes to the next member; its time is that of the slowest pair.
 *
 * Say n members, of which c_l lie in each block of level l (c_0 = 1), and B_l and L_l the bandwidth
 * times efficiency and the latency of level l, never better than those of the levels inside it:
 *   all_gather, reduce_scatter   V Σ (1/c_(l-1) - 1/c_l) / B_l + Σ (n/c_(l-1) - n/c_l) L_l
 *     Rings as NCCL lays them: over a level goes what the blocks inside it have not exchanged yet,
 *     each device having its own way out, and a piece travels n - 1 edges. V is the whole: bytes of
 *     a reduce_scatter, n bytes of an all_gather. On one level: V (n - 1) / (n B) + (n - 1) L.
 *   all_reduce                   a reduce_scatter and an all_gather of V = bytes; or, where that
 *     is less (small messages), two trees: 2 bytes / B + 2 Σ ceil(log2(c_l / c_(l-1))) L_l, B of
 *     the farthest level (Sanders, Speck, Träff 2009)
 *   all_reduce, directly         twice an all_to_all: collectives.all_reduce.algo: tree
 *   all_reduce, round a ring     2 (bytes / B + Σ (n/c_(l-1) - n/c_l) L_l), B of the far level,
 *     since each edge carries all of it: collectives.all_reduce.algo: ring
 *   all_to_all                   Σ (c_l - c_(l-1)) (bytes / (n B_l) + L_l): each to each directly
 *   broadcast                    one tree: bytes / B + Σ ceil(log2(c_l / c_(l-1))) L_l
 *   reduce                       Σ (c_l - c_(l-1)) (bytes / B_l + L_l): each to the root directly,
 *     which adds in the order of the recipe
 *   send                         bytes / B + L, of the farthest level
 * Where members lie unevenly in a level's blocks, the level gains nothing and all goes over the
 * next level outside.
 *
 * ret_path (may be NULL): the name of the farthest level crossed. One member: 0 and "". A group
 * that no level joins: INFINITY and "". */
double tsr_machine_collective_seconds(
    const tsr_machine *m, tsr_machine_collective kind, double bytes, tsr_machine_group group,
    const char **ret_path);
/* What one member sends over each level then; of an all_reduce as rings do it. */
void tsr_machine_collective_bytes(
    const tsr_machine *m, tsr_machine_collective kind, double bytes, tsr_machine_group group,
    double ret_bytes[TSR_MACHINE_LINKS_MAX]);

#endif
