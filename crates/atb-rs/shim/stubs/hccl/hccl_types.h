// Stand-in for CANN's header of this name, for folders that lack it. ATB's headers keep a communicator as a pointer in
// parameters of operations over several devices, of which the shim makes none.
#ifndef SPEC_ATB_STUB_HCCL_TYPES_H
#define SPEC_ATB_STUB_HCCL_TYPES_H

typedef void *HcclComm;

#endif
