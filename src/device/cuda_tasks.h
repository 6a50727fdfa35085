/* What is asked of a program's tasks before several of them are run as one. */
#ifndef TSR_DEVICE_CUDA_TASKS_H
#define TSR_DEVICE_CUDA_TASKS_H
#include "device/cuda_ops.h"

/* Whether a task is the program's own, and not a copy of one (cuda_recast.h). */
bool cuda_is_listed(const tsr_program *program, const tsr_task *task);

/* Whether b, which comes after a, is run whenever a is. */
bool cuda_are_together(const tsr_program *program, const tsr_task *a, const tsr_task *b);

/* The task that is always run right behind one of the program's; NULL: there is none. */
const tsr_task *cuda_follower(const tsr_program *program, const tsr_task *task);

/* Whether x is of y's type, and all of its elements are here. */
bool cuda_is_here(const tsr_tensor *x, const tsr_tensor *y);

/* Whether a task adds two tensors of one shape and type, all of whose elements are here. */
bool cuda_adds_tensors(const tsr_task *task);

/* Whether two tensors share bytes. */
bool cuda_overlap(const cuda_call *call, const tsr_tensor *a, const tsr_tensor *b);

#endif
