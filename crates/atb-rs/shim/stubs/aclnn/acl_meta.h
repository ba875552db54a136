// Stand-in for CANN's header of this name, for folders that lack it. ATB's headers name these types in pointers only,
// and the shim names none of them.
#ifndef SPEC_ATB_STUB_ACL_META_H
#define SPEC_ATB_STUB_ACL_META_H

extern "C" {
typedef struct aclIntArray aclIntArray;
typedef struct aclTensor aclTensor;
typedef struct aclTensorList aclTensorList;
typedef struct aclOpExecutor aclOpExecutor;
}

#endif
