/* Additions that a norm does in its pass over the rows: the residual whose sum it normalizes, and
 * backward the gradient that came past it by the residual. The bits are those of one task after the
 * other. */
#ifndef TSR_DEVICE_CUDA_NORMS_H
#define TSR_DEVICE_CUDA_NORMS_H
#include "device/cuda_ops.h"

/* Whether the call's task is such an addition, which a norm behind it does, or one before it has
 * done. */
bool cuda_is_in_norm(const cuda_call *call);

#endif
