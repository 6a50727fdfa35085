// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/pack_buffer.h"

_Thread_local tsr_pack_buffer_words tsr_pack_buffer __attribute__((aligned(64)));
