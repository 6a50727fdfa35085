/* Where ranks compute, when that is not the CPU: a device that a plugin runs. Its memory is one
 * that the host reaches too, once the device is done with it; so what is read and written between
 * steps knows nothing of devices. */
#ifndef TSR_DEVICE_DEVICE_H
#define TSR_DEVICE_DEVICE_H
#include "device/cpu.h"

enum { TSR_DEVICE_MEMBERS_MAX = 256 }; /* of one sum */

typedef struct {
  const char *name; /* "cuda" */
  void *state;
  /* All zeros, aligned to 256. `why` (512 bytes) gets the reason of a failure. */
  bool (*allocate)(void *state, int64_t bytes, void **ret_memory, char *why);
  void (*release)(void *state, void *memory);
  int64_t (*available)(void *state); /* bytes */

  /* Whether it runs an op's tasks. Others run on the host, on the same memory. */
  bool (*has)(void *state, tsr_op op);
  /* These begin work, in the order of the calls; `wait` is over when all of it is done. */
  void (*run)(void *state, const tsr_cpu_call *call);
  void (*copy)(void *state, void *to, const void *from, int64_t bytes);
  /* As kernels/cuda/kernels.h has them under the same names. */
  void (*sum_members)(
      void *state, float *const *out, int outs, float *const *in, int members, int64_t outer,
      int64_t part, int64_t step, int64_t start);
  void (*move)(
      void *state, void *out, const int64_t *out_step, const void *x, const int64_t *x_step,
      int bytes, int ndim, const int64_t *shape);
  void (*wait)(void *state);
} tsr_device;

#endif
