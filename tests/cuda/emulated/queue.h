// SPDX-License-Identifier: Apache-2.0
/* The operations of emulated devices that have been begun and are not done: kernels, copies, records
 * of events, nodes of graphs. Each depends on others; any order that the dependencies allow is one
 * that hardware may choose, and an operation may be delayed for as long as nobody waits for it. The
 * order is drawn from the seed in $EMULATED_CUDA (cuda_runtime_api.h); with seed 0 an operation is
 * done when it is begun. */
#ifndef TSR_TESTS_CUDA_QUEUE_H
#define TSR_TESTS_CUDA_QUEUE_H
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

/* Of variables: constructors of programs may begin operations. */
#define EMULATED_FIRST __attribute__((init_priority(101)))

namespace emulator {

/* NOTHING: it waits for another process; MOVED: it is done in part. */
enum progress { NOTHING, MOVED, DONE };
typedef std::function<progress()> work;

/* Of several operations that are ready, one of the lane with the highest priority is next. */
struct queue_lane {
  uint64_t priority;
};
std::shared_ptr<queue_lane> lane_new();

struct operation {
  const char *what;
  work run;
  std::shared_ptr<queue_lane> of;
  std::vector<std::shared_ptr<operation>> after, then; /* what it depends on, what depends on it */
  const void *host;         /* pinned memory that it reads or writes; NULL: none */
  size_t host_bytes, waits; /* `waits`: for so many of `after` */
  uint64_t number;
  double ended_ms; /* when it was done */
  bool done;
};
typedef std::shared_ptr<operation> op;

/* A word "NAME=" of $EMULATED_CUDA. */
long long setting(const char *word, long long otherwise);

/* Begins an operation; those of `after` that are NULL or done do not matter. */
op queue_add(
    const char *what, const std::shared_ptr<queue_lane> &of, const std::vector<op> &after, work run,
    const void *host = nullptr, size_t host_bytes = 0);
/* Runs operations until that one is done, or with NULL until all are. */
void queue_wait(const op &target);
/* As time passes: some operations, or none. */
void queue_pass();
/* The operation that is running, or NULL: the host is. */
const operation *queue_running();
/* One that is not done and reads or writes some of these bytes of pinned memory, or NULL. */
const operation *queue_user(const void *host, size_t bytes);
bool queue_is_idle();
/* A host function: device memory is not accessible in it. */
void queue_call_host(const std::function<void()> &function);

} // namespace emulator

#endif
