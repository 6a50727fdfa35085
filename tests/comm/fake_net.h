// SPDX-License-Identifier: Apache-2.0
/* A transport whose processes are all driven by one thread, in which a seed decides when a message
 * is done. It is as unkind as the contract lets it be: what a receive may write into is garbage as
 * soon as it is begun, and what is sent is read at the last moment, or at once. */
#ifndef TSR_TESTS_COMM_FAKE_NET_H
#define TSR_TESTS_COMM_FAKE_NET_H
#include "comm/transport.h"

typedef struct fake_net fake_net;

fake_net *fake_net_new(int processes, uint64_t seed);
/* How many messages were begun and never done. */
int fake_net_free(fake_net *net);
void fake_net_endpoint(fake_net *net, int process, tsr_transport *ret_transport);

/* From now on messages of `process` stay pending, or (fails) fail. */
void fake_net_stop(fake_net *net, int process, bool fails);
/* The same of one process as soon as so many messages of all processes are begun. */
void fake_net_stop_at(fake_net *net, int process, int64_t messages, bool fails);
bool fake_net_is_stopped(const fake_net *net, int process);
/* Messages of all processes that were begun. */
int64_t fake_net_begun(const fake_net *net);
/* Bytes that a process has sent to others. */
int64_t fake_net_sent(const fake_net *net, int process);
/* Bytes that were sent from one host to another, of processes on these hosts. */
void fake_net_set_hosts(fake_net *net, const int *hosts);
int64_t fake_net_crossed(const fake_net *net);

#endif
