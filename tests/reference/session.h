// SPDX-License-Identifier: Apache-2.0
/* A model of tests/reference/data, compiled and bound on a mesh of CPU ranks, for the comparison
 * with what PyTorch computed. */
#ifndef TSR_TESTS_REFERENCE_SESSION_H
#define TSR_TESTS_REFERENCE_SESSION_H
#include "runtime/process.h"
#include "tests/reference/reference_file.h"
#include "train/compile.h"

typedef struct {
  const char *name; /* of the model: the file's stem */
  int dp, tp;
  int ranks;               /* > 0: a line of so many, of which `sets` say the axes */
  const char *const *sets; /* overrides of the configuration; NULL-terminated */
  bool generation;         /* also a program that ends at the logits */
} session_options;

typedef struct {
  session_options options;
  tsr_arena *arena;
  tsr_diags *diags;
  tsr_reference *ref;
  tsr_config *config;
  tsr_parallel *parallel;
  tsr_compiled training, generation;
  tsr_process *process;
  tsr_executable *train, *generate;
  const void *rows[2]; /* the batch's inputs and targets, of 4 bytes an element */
  int64_t row_bytes[2];
  int64_t samples, counted; /* counted: targets that are not -100; samples of a table */
  int64_t first;            /* the sample that the program's first row is filled with */
} session;

/* Prints the diagnostics and aborts when something refuses: every case here must run. The
 * parameters are the reference's. Weight decay applies to every parameter, as in the reference. */
session *session_open(const session_options *options);
void session_close(session *s);

/* Whether routers take the experts of each token from the reference's file. */
bool session_replays(const session *s);

/* Step number `step` (from 0) on the reference's batch. */
void session_step(session *s, int64_t step, float *ret_loss, float *ret_norm);

/* The whole logits of the reference's batch, (rows, vocabulary) without padding; free() them. */
float *session_logits(session *s);

/* A parameter's part of the reference's tensor `prefix` + its name there, in this project's layout;
 * free() it. `ret_largest`: the largest magnitude of the tensor in the file. */
float *session_reference(const session *s, const char *prefix, int param, float *ret_largest);
int64_t session_elements(const session *s, int param); /* without padding */
/* A whole value of the training program, padding at its end included; free() it. */
float *session_value(const session *s, int value);
int session_state(const session *s, int param); /* the value of its first optimizer state, or -1 */
/* Whether it is a part of the reference's tensor of this name. */
bool session_is_part(const session *s, int param, const char *what);

#endif
