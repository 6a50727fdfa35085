// SPDX-License-Identifier: Apache-2.0
/* What a sweep knows and has decided, as JSON lines in DIR/decisions.jsonl, so that it continues
 * after an end at any time as if there had been none. The first line has the definition:
 *
 *   {"event":"sweep","format":1,"definition":{"method":"grid","parameters.lr":"[0.1, 0.2]",…}}
 *   {"event":"result","run":2,"rung":0,"state":"done","step":12,"objective":2.04,
 *    "weights_sha256":"…"}            state failed has "why"; objective null: there is none
 *   {"event":"rung","rung":0,"ranking":[2,1,3],"kept":[2]}     the others stop
 *
 * A line is on the disk (fsync) before the sweep acts on it. A last line that is cut off is removed
 * by the next sweep. */
#ifndef TSR_SWEEP_JOURNAL_H
#define TSR_SWEEP_JOURNAL_H
#include "sweep/result.h"

typedef struct {
  const char *key, *value;
} tsr_sweep_entry;

typedef struct {
  const char *path;
  int fd;   /* -1: it is not open */
  int rung; /* that runs are trained to next: how many decisions there are */
} tsr_sweep_journal;

/* Opens the folder's journal, which the caller has locked, or begins one with the definition.
 * Results and decisions of before are put into `results` (of `count` runs); there are `decisions`
 * at most. A run that failed waits again, unless a decision has ranked it. Errors: the file is of
 * another definition, whose differences are named; a line that no sweep has written. */
bool tsr_sweep_journal_open(
    tsr_arena *arena, const char *folder, const tsr_sweep_entry *definition, int entries,
    int decisions, tsr_sweep_result *results, int count, tsr_sweep_journal *ret_journal,
    tsr_diags *diags);

/* Each writes a line. Failure: it is not on the disk. */
bool tsr_sweep_journal_result(
    tsr_sweep_journal *journal, int run, const tsr_sweep_result *result, tsr_diags *diags);
/* Runs by number; the first `kept` of the ranking go on. The journal is at the next rung then. */
bool tsr_sweep_journal_decision(
    tsr_sweep_journal *journal, const int *ranking, int count, int kept, tsr_diags *diags);

void tsr_sweep_journal_close(tsr_sweep_journal *journal);

#endif
