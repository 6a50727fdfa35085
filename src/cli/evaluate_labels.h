// SPDX-License-Identifier: Apache-2.0
/* `evaluate` of a model that tells classes of documents apart: what is printed and written. */
#ifndef TSR_CLI_EVALUATE_LABELS_H
#define TSR_CLI_EVALUATE_LABELS_H
#include "cli/trained_model.h"
#include "train/evaluate.h"

/* Where --out and --log-samples can be written. Errors: another model's evaluation has neither
 * without --eval-set. */
bool evaluate_labels_check(const trained_model *m, const tsr_compiled *compiled);
/* Loss and accuracy on the standard output, and the files of --out and --log-samples. */
bool evaluate_labels_report(const trained_model *m, const tsr_evaluation *evaluation);

#endif
