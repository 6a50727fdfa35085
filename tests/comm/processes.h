// SPDX-License-Identifier: Apache-2.0
/* What every process of a transport must see; run by each of them at the same time. */
#ifndef TSR_TESTS_COMM_PROCESSES_H
#define TSR_TESTS_COMM_PROCESSES_H
#include "comm/transport.h"

/* Each returns how many checks failed on this process, and prints them. */
int processes_check_all(const tsr_transport *t);
int processes_check_huge(const tsr_transport *t, int64_t bytes);

#endif
