// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/doctor.h"
#include "cli/doctor/findings.h"

enum { TIMEOUT_S = 30 };

bool tsr_doctor(tsr_arena *arena, const tsr_kernels *kernels, tsr_text *text) {
  static const struct {
    const char *name;
    tsr_layer *ask;
  } layers[] = {
      {"cpu", tsr_doctor_cpu},
      {"openmpi", tsr_doctor_openmpi},
      {"mpich", tsr_doctor_mpich},
      {"slurm", tsr_doctor_slurm},
      {"driver", tsr_doctor_driver},
      {"cuda", tsr_doctor_cuda},
      {"nccl", tsr_doctor_nccl},
      {"nvlink", tsr_doctor_nvlink},
      {"infiniband", tsr_doctor_infiniband},
      {"gpudirect", tsr_doctor_gpudirect},
      {"nvshmem", tsr_doctor_nvshmem},
      {"deepep", tsr_doctor_deepep}};
  tsr_findings f = {.arena = arena, .kernels = kernels};
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
    tsr_ask_in_subprocess(&f, layers[i].name, layers[i].ask, TIMEOUT_S);
  tsr_text_add_bytes(text, f.text.data, f.text.length);
  tsr_text_free(&f.text);
  return !f.mismatched;
}
