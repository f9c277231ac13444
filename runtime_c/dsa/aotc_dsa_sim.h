/* aotc_dsa_sim.h: what the files of the functional simulator have in common. */
#ifndef AOTC_DSA_SIM_H
#define AOTC_DSA_SIM_H

#include "aotc_dsa.h"

/* Add a line to the file that AOTC_DSA_TRACE names, if it is set: of work item, cluster and core
 * what happens, with which token, and bytes. */
void aotc_dsa_trace(const aotc_dsa_core *core, const char *what, int token, int64_t bytes);

/* Keep the text of the first refusal. */
void aotc_dsa_refuse(aotc_dsa_core *core, const char *format, ...);

/* Refuse an access to the core's LB, whose byte ``at`` has the state ``state``. */
void aotc_dsa_refuse_state(aotc_dsa_core *core, size_t at, uint8_t state, const char *verb);

/* True, and a refusal, for a place that is no element of the core's LB. */
int aotc_dsa_outside(aotc_dsa_core *core, const void *place, size_t size, const char *verb);

/* True, and a refusal, for a buffer that cannot be in LB. */
int aotc_dsa_misplaced(aotc_dsa_core *core, const char *name, size_t at, size_t bytes);
/* True for an address in the GB of any cluster. */
int aotc_dsa_in_shared(const aotc_dsa *machine, const void *place);
/* Which buffer in GB has an address; -1 if none has. */
int aotc_dsa_shared_at(const aotc_dsa_core *core, const void *place);
/* A buffer goes over what may have stayed in these bytes of LB. */
void aotc_dsa_written_over(const aotc_dsa_core *core, size_t at, size_t bytes);
/* A work item is done: what stays in its LB is there for the next one. */
void aotc_dsa_keep_held(const aotc_dsa_core *core);

#endif
