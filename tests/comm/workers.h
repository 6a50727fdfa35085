// SPDX-License-Identifier: Apache-2.0
/* What every worker of a transport must see; run by each of them at the same time. */
#ifndef TSR_TESTS_COMM_WORKERS_H
#define TSR_TESTS_COMM_WORKERS_H
#include "comm/transport.h"

/* Each returns how many checks failed on this worker, and prints them. */
int workers_check_all(const tsr_transport *t);
int workers_check_huge(const tsr_transport *t, int64_t bytes);

#endif
