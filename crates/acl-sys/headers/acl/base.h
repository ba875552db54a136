/*
 * AscendCL, part 1: status type, start and end, versions, element types, data buffers, half precision.
 *
 * Written for this crate: it re-declares what is needed to call the library (names, values, layouts) in words of its
 * own. `acl-bindings generate` makes Rust of it, `acl-bindings abi-check` compares that with the vendor's headers.
 */
#ifndef ACL_SYS_BASE_H
#define ACL_SYS_BASE_H

#include <stddef.h>
#include <stdint.h>

typedef int aclError;

/** Bits of an IEEE 754 binary16 number. */
typedef uint16_t aclFloat16;

/** A device context; null is none. */
typedef void *aclrtContext;
/** A stream; null is the default stream of the current context. */
typedef void *aclrtStream;
/** An event. */
typedef void *aclrtEvent;

/** Element type of a tensor. The numbers have holes, and newer releases add more. */
typedef enum aclDataType {
    ACL_DT_UNDEFINED = -1,
    ACL_FLOAT = 0,
    ACL_FLOAT16 = 1,
    ACL_INT8 = 2,
    ACL_INT32 = 3,
    ACL_UINT8 = 4,
    ACL_INT16 = 6,
    ACL_UINT16 = 7,
    ACL_UINT32 = 8,
    ACL_INT64 = 9,
    ACL_UINT64 = 10,
    ACL_DOUBLE = 11,
    ACL_BOOL = 12,
    ACL_STRING = 13,
    ACL_COMPLEX64 = 16,
    ACL_COMPLEX128 = 17,
    ACL_BF16 = 27,
    ACL_INT4 = 29,
    ACL_UINT1 = 30,
    ACL_COMPLEX32 = 33,
    /** Known since CANN 8.5, like every one below. */
    ACL_HIFLOAT8 = 34,
    ACL_FLOAT8_E5M2 = 35,
    ACL_FLOAT8_E4M3FN = 36,
    ACL_FLOAT8_E8M0 = 37,
    ACL_FLOAT6_E3M2 = 38,
    ACL_FLOAT6_E2M3 = 39,
    ACL_FLOAT4_E2M1 = 40,
    ACL_FLOAT4_E1M2 = 41
} aclDataType;

/** Memory layout of a tensor. */
typedef enum aclFormat {
    ACL_FORMAT_UNDEFINED = -1,
    ACL_FORMAT_NCHW = 0,
    ACL_FORMAT_NHWC = 1,
    /** Plain row-major, any rank. */
    ACL_FORMAT_ND = 2,
    ACL_FORMAT_NC1HWC0 = 3,
    ACL_FORMAT_FRACTAL_Z = 4,
    ACL_FORMAT_NC1HWC0_C04 = 12,
    ACL_FORMAT_HWCN = 16,
    ACL_FORMAT_NDHWC = 27,
    /** Tiles of 16 columns, the cube unit's own order ("NZ"). */
    ACL_FORMAT_FRACTAL_NZ = 29,
    ACL_FORMAT_NCDHW = 30,
    ACL_FORMAT_NDC1HWC0 = 32,
    ACL_FRACTAL_Z_3D = 33,
    ACL_FORMAT_NC = 35,
    ACL_FORMAT_NCL = 47,
    /** Known since CANN 8.3. */
    ACL_FORMAT_FRACTAL_NZ_C0_16 = 50,
    /** Known since CANN 8.3. */
    ACL_FORMAT_FRACTAL_NZ_C0_32 = 51,
    /** Known since CANN 8.5, like the ones below. */
    ACL_FORMAT_FRACTAL_NZ_C0_2 = 52,
    ACL_FORMAT_FRACTAL_NZ_C0_4 = 53,
    ACL_FORMAT_FRACTAL_NZ_C0_8 = 54
} aclFormat;

/** A part of CANN that has a version of its own, for `aclsysGetCANNVersion`. */
typedef enum aclCANNPackageName {
    ACL_PKG_NAME_CANN = 0,
    ACL_PKG_NAME_RUNTIME = 1,
    ACL_PKG_NAME_COMPILER = 2,
    ACL_PKG_NAME_HCCL = 3,
    ACL_PKG_NAME_TOOLKIT = 4,
    ACL_PKG_NAME_OPP = 5,
    ACL_PKG_NAME_OPP_KERNEL = 6,
    ACL_PKG_NAME_DRIVER = 7
} aclCANNPackageName;

/** A version as NUL-terminated text: whole, then in parts. */
typedef struct aclCANNPackageVersion {
    char version[128];
    char majorVersion[64];
    char minorVersion[64];
    char releaseVersion[64];
    char patchVersion[64];
    char reserved[128];
} aclCANNPackageVersion;

/** A pointer with a length. Opaque: it does not own what it points to. */
typedef struct aclDataBuffer aclDataBuffer;

/** Starts AscendCL in this process. `configPath` names a JSON file, or is null. */
aclError aclInit(const char *configPath);
/** Ends AscendCL in this process, whatever the number of starts. */
aclError aclFinalize(void);
/** Takes one start back and says how many are left; ends AscendCL at none. */
aclError aclFinalizeReference(uint64_t *refCount);
/** The last error's text of this thread, which it clears. Null when there is none; valid until the thread asks again. */
const char *aclGetRecentErrMsg(void);
/** Name of the chip, such as `Ascend910B1`; null when it is not known. */
const char *aclrtGetSocName(void);
/** Version of the AscendCL interface, which is not the version of CANN. Deprecated by the vendor. */
aclError aclrtGetVersion(int32_t *majorVersion, int32_t *minorVersion, int32_t *patchVersion);
/** Version of a package such as `runtime`, as text into a buffer of 128 bytes. */
aclError aclsysGetVersionStr(char *pkgName, char *versionStr);
/** Version of a package as one number: major * 10^7 + minor * 10^5 + patch * 10^3, less for pre-releases. */
aclError aclsysGetVersionNum(char *pkgName, int32_t *versionNum);
/** Version of a package. Deprecated by the vendor in favour of `aclsysGetVersionStr`. */
aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion *version);

/** Bytes per element; 0 for types without a whole number of them. */
size_t aclDataTypeSize(aclDataType dataType);
/** Widens half precision, exactly. */
float aclFloat16ToFloat(aclFloat16 value);
/** Narrows to half precision; what is out of range becomes the largest finite value. */
aclFloat16 aclFloatToFloat16(float value);

/** Describes `size` bytes at `data`; null on failure. */
aclDataBuffer *aclCreateDataBuffer(void *data, size_t size);
/** Frees the description, not what it points to. */
aclError aclDestroyDataBuffer(const aclDataBuffer *dataBuffer);
/** Where the described bytes are. */
void *aclGetDataBufferAddr(const aclDataBuffer *dataBuffer);
/** How many bytes are described. */
size_t aclGetDataBufferSizeV2(const aclDataBuffer *dataBuffer);
/** Points the description at other bytes. */
aclError aclUpdateDataBuffer(aclDataBuffer *dataBuffer, void *data, size_t size);

#endif
