// SPDX-License-Identifier: Apache-2.0
/* Plugins that must be refused; -DBAD says why. */
#include "comm/transport.h"

extern const tsr_transport_table tsr_transport_entry;
enum { ABI, SIZE, NAME, NONE, FAILS };

#if BAD == 3
extern const int nothing;
const int nothing = 0;
#else
static bool fail(void **ret_state, int *ret_process, int *ret_processes, char *why) {
  (void)ret_state, (void)ret_process, (void)ret_processes;
  snprintf(why, TSR_WHY_BYTES, "there is no network today");
  return false;
}

const tsr_transport_table tsr_transport_entry = {
    .abi = BAD == ABI ? 99 : TSR_TRANSPORT_ABI,
    .bytes = BAD == SIZE ? 8 : sizeof(tsr_transport_table),
    .name = BAD == NAME ? "pigeons" : "openmpi",
    .open = fail,
};
#endif
