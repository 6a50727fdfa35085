// SPDX-License-Identifier: Apache-2.0
/* One device of the plugin, as the runtime needs it. */
#ifndef TSR_DEVICE_CUDA_DEVICE_H
#define TSR_DEVICE_CUDA_DEVICE_H
#include "device/cuda/plugin_abi.h"
#include "device/cuda/ops.h"

/* As in tsr_cuda_table. */
bool cuda_device_open(const tsr_cuda_request *request, const tsr_device **ret_device, char *why);
void cuda_device_close(const tsr_device *device);
bool cuda_device_join(const tsr_device *device, const tsr_cuda_job *job, char *why);
/* FLOP/s of GEMMs in that type, bytes/s read and written; 0: not known. */
void cuda_measure_peaks(
    const cuda_state *state, int processors, tsr_cuda_type type, double *ret_flops,
    double *ret_bytes);

/* ---- plugin.c: what the runtime's errors mean ---- */

/* "no device: …", and what to do about it after a newline, into TSR_CUDA_WHY_BYTES; false. */
bool cuda_fail(char *why, const char *what, int error);
bool cuda_describe(int number, tsr_cuda_device *ret_device, char *why);
bool cuda_fits(const tsr_cuda_device *device, char *why);

#endif
