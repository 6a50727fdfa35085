#include "cli/doctor/doctor.h"
#include "cli/doctor/findings.h"
#include <string.h>

/* Where the text of a finding begins. */
enum { LAYER_COLUMNS = 10, FINDING_COLUMNS = 12, PATIENCE_S = 30 };

void tsr_find(tsr_findings *f, const char *layer, tsr_finding finding, const char *format, ...) {
  static const char *const words[] = {"found", "missing", "mismatched"};
  va_list list;
  va_start(list, format);
  const char *text = tsr_arena_vprintf(f->arena, format, list);
  va_end(list);
  f->mismatched |= finding == TSR_MISMATCHED;
  tsr_text_add(&f->text, "%-*s%-*s", LAYER_COLUMNS, layer, FINDING_COLUMNS, words[finding]);
  for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    tsr_text_add(
        &f->text, "%*s%.*s\n", line == text ? 0 : LAYER_COLUMNS + FINDING_COLUMNS, "",
        (int)strcspn(line, "\n"), line);
}

void tsr_find_remedy(tsr_findings *f, const char *text) {
  tsr_text_add(&f->text, "%*s→ %s\n", LAYER_COLUMNS + FINDING_COLUMNS, "", text);
}

bool tsr_doctor(tsr_arena *arena, const tsr_kernels *kernels, tsr_text *text) {
  static const struct {
    const char *name;
    tsr_layer *ask;
  } layers[] = {{"cpu", tsr_doctor_cpu},       {"openmpi", tsr_doctor_openmpi},
                {"mpich", tsr_doctor_mpich},   {"slurm", tsr_doctor_slurm},
                {"driver", tsr_doctor_driver}, {"cuda", tsr_doctor_cuda},
                {"nccl", tsr_doctor_nccl}};
  tsr_findings f = {.arena = arena, .kernels = kernels};
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
    tsr_ask_apart(&f, layers[i].name, layers[i].ask, PATIENCE_S);
  tsr_text_add_bytes(text, f.text.data, f.text.length);
  tsr_text_free(&f.text);
  return !f.mismatched;
}
