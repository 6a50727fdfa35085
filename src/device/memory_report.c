// SPDX-License-Identifier: Apache-2.0
#include "device/memory_report.h"

void tsr_device_print_memory(const tsr_device *d, tsr_text *text) {
  tsr_device_memory m;
  if (!d->memory) return;
  d->memory(d->state, &m);
  tsr_text_add(
      text,
      "%s has %s; outside of the plan: %s of its context and other programs, %s of libraries, %s "
      "kept for kernels and graphs",
      d->name, tsr_text_bytes(m.bytes).text, tsr_text_bytes(m.at_open).text,
      tsr_text_bytes(m.libraries).text, tsr_text_bytes(m.reserve).text);
}
