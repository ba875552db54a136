/* AscendCL, part 5: offline models (.om), and captured graphs of a stream's work. See base.h for what these files are. */
#ifndef ACL_SYS_MODEL_H
#define ACL_SYS_MODEL_H

#include "base.h"

/** Name and shape of a model's input or output. */
typedef struct aclmdlIODims {
    /** NUL-terminated. */
    char name[128];
    /** How many of `dims` count. */
    size_t dimCount;
    /** -1 where the model leaves a dimension open. */
    int64_t dims[128];
} aclmdlIODims;

/** What a model says about itself. Opaque. */
typedef struct aclmdlDesc aclmdlDesc;
/** The inputs or outputs of one execution. Opaque. */
typedef struct aclmdlDataset aclmdlDataset;
/** A captured graph ("running instance"). */
typedef void *aclmdlRI;

/** What else may not happen during a capture. */
typedef enum aclmdlRICaptureMode {
    /** Calls that would break it are refused on every thread. */
    ACL_MODEL_RI_CAPTURE_MODE_GLOBAL = 0,
    /** They are refused on the capturing thread. */
    ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL = 1,
    /** They are not refused. */
    ACL_MODEL_RI_CAPTURE_MODE_RELAXED = 2
} aclmdlRICaptureMode;

/** Whether a stream is being captured. */
typedef enum aclmdlRICaptureStatus {
    ACL_MODEL_RI_CAPTURE_STATUS_NONE = 0,
    ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE = 1,
    /** It was, until something broke it. */
    ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED = 2
} aclmdlRICaptureStatus;

/** Bytes of work memory and of weights that a model's file asks for. */
aclError aclmdlQuerySize(const char *fileName, size_t *workSize, size_t *weightSize);
/** Loads a model from a file. */
aclError aclmdlLoadFromFile(const char *modelPath, uint32_t *modelId);
/** Loads a model from memory. */
aclError aclmdlLoadFromMem(const void *model, size_t modelSize, uint32_t *modelId);
/** Unloads a model. */
aclError aclmdlUnload(uint32_t modelId);

/** Makes an empty description; null on failure. */
aclmdlDesc *aclmdlCreateDesc(void);
/** Frees a description. */
aclError aclmdlDestroyDesc(aclmdlDesc *modelDesc);
/** Fills a description from a loaded model. */
aclError aclmdlGetDesc(aclmdlDesc *modelDesc, uint32_t modelId);
/** Number of inputs. */
size_t aclmdlGetNumInputs(aclmdlDesc *modelDesc);
/** Number of outputs. */
size_t aclmdlGetNumOutputs(aclmdlDesc *modelDesc);
/** Bytes of an input. */
size_t aclmdlGetInputSizeByIndex(aclmdlDesc *modelDesc, size_t index);
/** Bytes of an output. */
size_t aclmdlGetOutputSizeByIndex(aclmdlDesc *modelDesc, size_t index);
/** Shape of an input. */
aclError aclmdlGetInputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims);
/** Shape of an output. */
aclError aclmdlGetOutputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims);
/** Shape of an output of the last execution. */
aclError aclmdlGetCurOutputDims(const aclmdlDesc *modelDesc, size_t index, aclmdlIODims *dims);
/** Name of an input; it lives as long as the description. */
const char *aclmdlGetInputNameByIndex(const aclmdlDesc *modelDesc, size_t index);
/** Name of an output; it lives as long as the description. */
const char *aclmdlGetOutputNameByIndex(const aclmdlDesc *modelDesc, size_t index);
/** Which input has a name. */
aclError aclmdlGetInputIndexByName(const aclmdlDesc *modelDesc, const char *name, size_t *index);
/** Element type of an input. */
aclDataType aclmdlGetInputDataType(const aclmdlDesc *modelDesc, size_t index);
/** Element type of an output. */
aclDataType aclmdlGetOutputDataType(const aclmdlDesc *modelDesc, size_t index);
/** Layout of an input. */
aclFormat aclmdlGetInputFormat(const aclmdlDesc *modelDesc, size_t index);
/** Layout of an output. */
aclFormat aclmdlGetOutputFormat(const aclmdlDesc *modelDesc, size_t index);

/** Makes an empty list of buffers; null on failure. */
aclmdlDataset *aclmdlCreateDataset(void);
/** Frees the list, not its buffers. */
aclError aclmdlDestroyDataset(const aclmdlDataset *dataset);
/** Appends a buffer, which has to live as long as the list. */
aclError aclmdlAddDatasetBuffer(aclmdlDataset *dataset, aclDataBuffer *dataBuffer);
/** Number of buffers. */
size_t aclmdlGetDatasetNumBuffers(const aclmdlDataset *dataset);
/** One of the buffers; null when there is none of that number. */
aclDataBuffer *aclmdlGetDatasetBuffer(const aclmdlDataset *dataset, size_t index);

/** Runs a model and waits for it. */
aclError aclmdlExecute(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output);
/** Runs a model in the order of a stream. */
aclError aclmdlExecuteAsync(uint32_t modelId, const aclmdlDataset *input, aclmdlDataset *output, aclrtStream stream);
/** Chooses the batch size of a model that has several. */
aclError aclmdlSetDynamicBatchSize(uint32_t modelId, aclmdlDataset *dataset, size_t index, uint64_t batchSize);
/** Chooses the shape of an input that leaves dimensions open. */
aclError aclmdlSetInputDynamicDims(uint32_t modelId, aclmdlDataset *dataset, size_t index, const aclmdlIODims *dims);

/** From here on a stream's work is noted down, not run. */
aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode);
/** Whether a stream is being captured, and into what. */
aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *modelRI);
/** Ends a capture and hands over what was noted. */
aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI *modelRI);
/** Runs captured work on a stream. */
aclError aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream);
/** Frees captured work. */
aclError aclmdlRIDestroy(aclmdlRI modelRI);

#endif
