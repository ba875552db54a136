// AscendCL's declarations: the vendor's where its toolkit is on the include path, else the ones of acl-sys.
#ifndef SPEC_DECODE_ACL_H
#define SPEC_DECODE_ACL_H

#if __has_include(<acl/acl.h>)
#include <acl/acl.h>
#else
extern "C" {
#include <acl/base.h>
#include <acl/device.h>
#include <acl/memory.h>
#include <acl/stream.h>
}
#endif

#endif
