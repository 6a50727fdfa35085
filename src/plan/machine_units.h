// SPDX-License-Identifier: Apache-2.0
/* Quantities as a machine description writes them: a decimal number and, after any spaces, a unit.
 *
 *   bytes              B kB MB GB TB, KiB MiB GiB TiB           80GiB
 *   bytes per second   those with /s, and bits: Mb/s Gb/s Tb/s  3.35TB/s, 400Gb/s
 *   operations /s      FLOP/s MFLOP/s GFLOP/s TFLOP/s PFLOP/s   989.4TFLOP/s
 *   seconds            s ms us ns                               5us
 *   fraction           without a unit                           0.85
 *
 * A number without a unit is in B, B/s, FLOP/s or s: 989e12, 1.5e-6. k, M, G, T and P are powers of
 * 1000, Ki, Mi, Gi and Ti of 1024; upper and lower case differ. */
#ifndef TSR_PLAN_MACHINE_UNITS_H
#define TSR_PLAN_MACHINE_UNITS_H
#include "base/text.h"
#include "config/yaml.h"

typedef enum {
  TSR_QUANTITY_BYTES,   /* > 0, at most 9e18 */
  TSR_QUANTITY_RATE,    /* bytes per second, > 0 */
  TSR_QUANTITY_FLOPS,   /* per second, > 0 */
  TSR_QUANTITY_SECONDS, /* >= 0 */
  TSR_QUANTITY_FRACTION /* > 0 and <= 1 */
} tsr_quantity;

/* The value of `key`; else an error at the node that names what is wanted, with the valid units
 * when it is the unit that is wrong. */
bool tsr_quantity_read(
    tsr_arena *arena, tsr_quantity kind, const char *key, const tsr_yaml *node, double *ret_value,
    tsr_diags *diags);

/* Adds a text that tsr_quantity_read reads as the very same value, with as few digits as that
 * takes; in the biggest unit of which it is one at least, or in another that saves digits, never in
 * bits. */
void tsr_quantity_print(tsr_quantity kind, double value, tsr_text *text);

#endif
