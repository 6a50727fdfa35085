/* A forward graph's ops once more, in double and as plainly as can be: what the float program is
 * compared with. */
#ifndef TSR_TESTS_DOUBLE_OPS_H
#define TSR_TESTS_DOUBLE_OPS_H
#include "graph/graph.h"
#include "kernels/kernels.h"

typedef struct {
  const tsr_graph *g;
  const tsr_kernels
      *kernels; /* for the masks of dropout, which are a function of seed, name and step */
  uint64_t seed;
  int64_t step;
  double inv_count;
  double *
      *values; /* per value; inputs (tokens as numbers) and parameters are the caller's to fill */
} doubles;

/* Memory for every value, and what constants hold. */
doubles
doubles_make(const tsr_graph *g, const tsr_kernels *kernels, uint64_t seed, double inv_count);
/* Runs the forward nodes in their order. */
void doubles_run(const doubles *d);

#endif
