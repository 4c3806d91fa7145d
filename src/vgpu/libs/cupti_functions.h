// The functions of the CUDA runtime and driver that the virtual GPU answers, with CUPTI's numbers and names ("callback ids": the same in
// all releases, checked in types_check.cc). The name of a runtime function ends with the release that introduced this form.
#pragma once

// clang-format off
#define GPUCAST_CUPTI_RUNTIME_FUNCTIONS(F) \
  F(1, cudaDriverGetVersion_v3020) F(2, cudaRuntimeGetVersion_v3020) F(3, cudaGetDeviceCount_v3020) \
  F(4, cudaGetDeviceProperties_v3020) F(5, cudaChooseDevice_v3020) F(10, cudaGetLastError_v3020) F(11, cudaPeekAtLastError_v3020) \
  F(12, cudaGetErrorString_v3020) F(14, cudaFuncSetCacheConfig_v3020) F(15, cudaFuncGetAttributes_v3020) F(16, cudaSetDevice_v3020) \
  F(17, cudaGetDevice_v3020) F(18, cudaSetValidDevices_v3020) F(19, cudaSetDeviceFlags_v3020) F(20, cudaMalloc_v3020) \
  F(21, cudaMallocPitch_v3020) F(22, cudaFree_v3020) F(25, cudaMallocHost_v3020) F(26, cudaFreeHost_v3020) F(27, cudaHostAlloc_v3020) \
  F(28, cudaHostGetDevicePointer_v3020) F(29, cudaHostGetFlags_v3020) F(30, cudaMemGetInfo_v3020) F(31, cudaMemcpy_v3020) \
  F(32, cudaMemcpy2D_v3020) F(39, cudaMemcpyToSymbol_v3020) F(40, cudaMemcpyFromSymbol_v3020) F(41, cudaMemcpyAsync_v3020) \
  F(44, cudaMemcpy2DAsync_v3020) F(47, cudaMemcpyToSymbolAsync_v3020) F(48, cudaMemcpyFromSymbolAsync_v3020) F(49, cudaMemset_v3020) \
  F(50, cudaMemset2D_v3020) F(51, cudaMemsetAsync_v3020) F(52, cudaMemset2DAsync_v3020) F(53, cudaGetSymbolAddress_v3020) \
  F(54, cudaGetSymbolSize_v3020) F(129, cudaStreamCreate_v3020) F(131, cudaStreamSynchronize_v3020) F(132, cudaStreamQuery_v3020) \
  F(133, cudaEventCreate_v3020) F(134, cudaEventCreateWithFlags_v3020) F(135, cudaEventRecord_v3020) F(136, cudaEventDestroy_v3020) \
  F(137, cudaEventSynchronize_v3020) F(138, cudaEventQuery_v3020) F(139, cudaEventElapsedTime_v3020) F(140, cudaMalloc3D_v3020) \
  F(144, cudaMemcpy3D_v3020) F(145, cudaMemcpy3DAsync_v3020) F(147, cudaStreamWaitEvent_v3020) F(151, cudaPointerGetAttributes_v4000) \
  F(152, cudaHostRegister_v4000) F(153, cudaHostUnregister_v4000) F(154, cudaDeviceCanAccessPeer_v4000) \
  F(155, cudaDeviceEnablePeerAccess_v4000) F(156, cudaDeviceDisablePeerAccess_v4000) F(160, cudaMemcpyPeer_v4000) \
  F(161, cudaMemcpyPeerAsync_v4000) F(164, cudaDeviceReset_v3020) F(165, cudaDeviceSynchronize_v3020) F(166, cudaDeviceGetLimit_v3020) \
  F(167, cudaDeviceSetLimit_v3020) F(168, cudaDeviceGetCacheConfig_v3020) F(169, cudaDeviceSetCacheConfig_v3020) \
  F(171, cudaProfilerStart_v4000) F(172, cudaProfilerStop_v4000) F(173, cudaDeviceGetByPCIBusId_v4010) \
  F(174, cudaDeviceGetPCIBusId_v4010) F(176, cudaIpcGetEventHandle_v4010) F(178, cudaIpcGetMemHandle_v4010) \
  F(182, cudaFuncSetSharedMemConfig_v4020) F(183, cudaDeviceGetSharedMemConfig_v4020) F(184, cudaDeviceSetSharedMemConfig_v4020) \
  F(197, cudaStreamAddCallback_v5000) F(198, cudaStreamCreateWithFlags_v5000) F(200, cudaDeviceGetAttribute_v5000) \
  F(201, cudaStreamDestroy_v5050) F(202, cudaStreamCreateWithPriority_v5050) F(203, cudaStreamGetPriority_v5050) \
  F(204, cudaStreamGetFlags_v5050) F(205, cudaDeviceGetStreamPriorityRange_v5050) F(206, cudaMallocManaged_v6000) \
  F(208, cudaStreamAttachMemAsync_v6000) F(209, cudaGetErrorName_v6050) F(210, cudaOccupancyMaxActiveBlocksPerMultiprocessor_v6050) \
  F(211, cudaLaunchKernel_v7000) F(212, cudaGetDeviceFlags_v7000) F(251, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_v7000) \
  F(252, cudaMemPrefetchAsync_v8000) F(254, cudaMemAdvise_v8000) F(255, cudaDeviceGetP2PAttribute_v8000) \
  F(266, cudaMemRangeGetAttribute_v8000) F(269, cudaLaunchCooperativeKernel_v9000) F(273, cudaFuncSetAttribute_v9000) \
  F(284, cudaLaunchHostFunc_v10000) F(286, cudaGraphCreate_v10000) F(289, cudaGraphAddKernelNode_v10000) \
  F(290, cudaGraphAddMemcpyNode_v10000) F(293, cudaGraphAddMemsetNode_v10000) F(296, cudaGraphAddHostNode_v10000) \
  F(298, cudaGraphAddChildGraphNode_v10000) F(300, cudaGraphAddEmptyNode_v10000) F(301, cudaGraphClone_v10000) \
  F(303, cudaGraphNodeGetType_v10000) F(304, cudaGraphGetRootNodes_v10000) F(305, cudaGraphNodeGetDependencies_v10000) \
  F(306, cudaGraphNodeGetDependentNodes_v10000) F(307, cudaGraphAddDependencies_v10000) F(308, cudaGraphRemoveDependencies_v10000) \
  F(309, cudaGraphDestroyNode_v10000) F(311, cudaGraphLaunch_v10000) F(313, cudaGraphExecDestroy_v10000) \
  F(314, cudaGraphDestroy_v10000) F(315, cudaStreamBeginCapture_v10000) F(317, cudaStreamIsCapturing_v10000) \
  F(319, cudaStreamEndCapture_v10000) F(322, cudaGraphGetNodes_v10000) F(323, cudaGraphGetEdges_v10000) \
  F(324, cudaStreamGetCaptureInfo_v10010) F(327, cudaThreadExchangeStreamCaptureMode_v10010) \
  F(329, cudaOccupancyAvailableDynamicSMemPerBlock_v10200) F(335, cudaGraphExecUpdate_v10020) F(336, cudaGetFuncBySymbol_v11000) \
  F(337, cudaCtxResetPersistingL2Cache_v11000) F(341, cudaStreamCopyAttributes_v11000) F(345, cudaStreamSetAttribute_v11000) \
  F(348, cudaGraphUpload_v10000) F(352, cudaGraphAddMemcpyNode1D_v11010) F(370, cudaEventRecordWithFlags_v11010) \
  F(372, cudaDeviceGetDefaultMemPool_v11020) F(373, cudaMallocAsync_v11020) F(375, cudaFreeAsync_v11020) \
  F(377, cudaMemPoolTrimTo_v11020) F(378, cudaMemPoolSetAttribute_v11020) F(379, cudaMemPoolGetAttribute_v11020) \
  F(380, cudaMemPoolSetAccess_v11020) F(382, cudaMemPoolGetAccess_v11020) F(383, cudaMemPoolCreate_v11020) \
  F(384, cudaMemPoolDestroy_v11020) F(385, cudaDeviceSetMemPool_v11020) F(386, cudaDeviceGetMemPool_v11020) \
  F(391, cudaMallocFromPoolAsync_v11020) F(405, cudaDeviceFlushGPUDirectRDMAWrites_v11030) F(406, cudaGetDriverEntryPoint_v11030) \
  F(408, cudaGraphDebugDotPrint_v11030) F(409, cudaStreamGetCaptureInfo_v2_v11030) F(411, cudaStreamUpdateCaptureDependencies_v11030) \
  F(413, cudaUserObjectCreate_v11030) F(414, cudaUserObjectRetain_v11030) F(415, cudaUserObjectRelease_v11030) \
  F(416, cudaGraphRetainUserObject_v11030) F(417, cudaGraphReleaseUserObject_v11030) F(418, cudaGraphInstantiateWithFlags_v11040) \
  F(423, cudaDeviceGraphMemTrim_v11040) F(424, cudaDeviceGetGraphMemAttribute_v11040) F(425, cudaDeviceSetGraphMemAttribute_v11040) \
  F(430, cudaLaunchKernelExC_v11060) F(432, cudaOccupancyMaxPotentialClusterSize_v11070) F(433, cudaOccupancyMaxActiveClusters_v11070) \
  F(436, cudaGraphInstantiateWithParams_v12000) F(438, cudaGraphExecGetFlags_v12000) F(439, cudaGetKernel_v12000) \
  F(441, cudaStreamGetId_v12000) F(443, cudaGraphInstantiate_v12000) F(444, cudaInitDevice_v12000)

#define GPUCAST_CUPTI_DRIVER_FUNCTIONS(F) \
  F(1, cuInit) F(2, cuDriverGetVersion) F(3, cuDeviceGet) F(4, cuDeviceGetCount) F(5, cuDeviceGetName) F(6, cuDeviceComputeCapability) \
  F(8, cuDeviceGetProperties) F(9, cuDeviceGetAttribute) F(16, cuCtxGetDevice) F(17, cuCtxSynchronize) F(18, cuModuleLoad) \
  F(19, cuModuleLoadData) F(20, cuModuleLoadDataEx) F(21, cuModuleLoadFatBinary) F(22, cuModuleUnload) F(23, cuModuleGetFunction) \
  F(38, cuMemFreeHost) F(39, cuMemHostAlloc) F(85, cuFuncGetAttribute) F(86, cuFuncSetCacheConfig) F(118, cuEventCreate) \
  F(119, cuEventRecord) F(120, cuEventQuery) F(121, cuEventSynchronize) F(124, cuStreamCreate) F(125, cuStreamQuery) \
  F(126, cuStreamSynchronize) F(135, cuGetExportTable) F(136, cuCtxSetLimit) F(137, cuCtxGetLimit) F(216, cuMemsetD8Async) \
  F(218, cuMemsetD16Async) F(220, cuMemsetD32Async) F(222, cuMemsetD2D8Async) F(226, cuMemsetD2D32Async) F(235, cuCtxCreate_v2) \
  F(241, cuModuleGetGlobal_v2) F(242, cuMemGetInfo_v2) F(243, cuMemAlloc_v2) F(244, cuMemAllocPitch_v2) F(245, cuMemFree_v2) \
  F(246, cuMemGetAddressRange_v2) F(247, cuMemHostGetDevicePointer_v2) F(249, cuMemsetD8_v2) F(250, cuMemsetD16_v2) \
  F(251, cuMemsetD32_v2) F(252, cuMemsetD2D8_v2) F(254, cuMemsetD2D32_v2) F(259, cuDeviceTotalMem_v2) F(276, cuMemcpyHtoD_v2) \
  F(277, cuMemcpyHtoDAsync_v2) F(278, cuMemcpyDtoH_v2) F(279, cuMemcpyDtoHAsync_v2) F(280, cuMemcpyDtoD_v2) \
  F(281, cuMemcpyDtoDAsync_v2) F(294, cuMemAllocHost_v2) F(295, cuStreamWaitEvent) F(296, cuCtxGetApiVersion) \
  F(299, cuCtxGetCacheConfig) F(300, cuCtxSetCacheConfig) F(302, cuMemHostUnregister) F(303, cuCtxSetCurrent) F(304, cuCtxGetCurrent) \
  F(305, cuMemcpy) F(306, cuMemcpyAsync) F(307, cuLaunchKernel) F(310, cuPointerGetAttribute) F(312, cuDeviceCanAccessPeer) \
  F(313, cuCtxEnablePeerAccess) F(314, cuCtxDisablePeerAccess) F(318, cuMemcpyPeer) F(319, cuMemcpyPeerAsync) F(322, cuCtxDestroy_v2) \
  F(323, cuCtxPushCurrent_v2) F(324, cuCtxPopCurrent_v2) F(325, cuEventDestroy_v2) F(326, cuStreamDestroy_v2) \
  F(331, cuDeviceGetByPCIBusId) F(332, cuDeviceGetPCIBusId) F(336, cuCtxSetSharedMemConfig) F(337, cuCtxGetSharedMemConfig) \
  F(338, cuFuncSetSharedMemConfig) F(346, cuStreamAddCallback) F(365, cuLinkComplete) F(366, cuLinkDestroy) \
  F(367, cuStreamCreateWithPriority) F(368, cuStreamGetPriority) F(369, cuStreamGetFlags) F(370, cuCtxGetStreamPriorityRange) \
  F(371, cuMemAllocManaged) F(372, cuGetErrorString) F(373, cuGetErrorName) F(374, cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  F(378, cuPointerSetAttribute) F(379, cuMemHostRegister_v2) F(381, cuLinkCreate_v2) F(382, cuLinkAddData_v2) F(383, cuLinkAddFile_v2) \
  F(384, cuOccupancyMaxPotentialBlockSize) F(386, cuDevicePrimaryCtxRetain) F(391, cuCtxGetFlags) F(392, cuDevicePrimaryCtxGetState) \
  F(450, cuPointerGetAttributes) F(451, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
  F(452, cuOccupancyMaxPotentialBlockSizeWithFlags) F(477, cuLaunchCooperativeKernel) F(481, cuFuncSetAttribute) \
  F(483, cuStreamGetCtx) F(497, cuStreamEndCapture) F(499, cuStreamIsCapturing) F(501, cuGraphCreate) F(509, cuGraphNodeGetType) \
  F(514, cuGraphLaunch) F(516, cuGraphExecDestroy) F(517, cuGraphDestroy) F(527, cuLaunchHostFunc) F(534, cuGraphGetNodes) \
  F(536, cuStreamGetCaptureInfo) F(539, cuStreamBeginCapture_v2) F(541, cuThreadExchangeStreamCaptureMode) \
  F(544, cuDevicePrimaryCtxRelease_v2) F(545, cuDevicePrimaryCtxReset_v2) F(546, cuDevicePrimaryCtxSetFlags_v2) \
  F(547, cuMemAddressReserve) F(548, cuMemAddressFree) F(549, cuMemCreate) F(550, cuMemRelease) F(551, cuMemMap) F(552, cuMemUnmap) \
  F(553, cuMemSetAccess) F(556, cuMemGetAllocationGranularity) F(557, cuMemGetAllocationPropertiesFromHandle) F(558, cuMemGetAccess) \
  F(568, cuCtxResetPersistingL2Cache) F(580, cuGraphUpload) F(587, cuEventRecordWithFlags) F(598, cuMemAllocAsync) \
  F(600, cuMemFreeAsync) F(602, cuMemPoolTrimTo) F(605, cuMemPoolSetAccess) F(606, cuDeviceGetDefaultMemPool) F(607, cuMemPoolCreate) \
  F(608, cuMemPoolDestroy) F(611, cuMemAllocFromPoolAsync) F(626, cuGetProcAddress) F(629, cuStreamGetCaptureInfo_v2) \
  F(631, cuStreamUpdateCaptureDependencies) F(645, cuCtxCreate_v3) F(647, cuDeviceGetUuid_v2) F(652, cuLaunchKernelEx) \
  F(673, cuModuleGetLoadingMode) F(675, cuOccupancyMaxPotentialClusterSize) F(676, cuOccupancyMaxActiveClusters) \
  F(677, cuGetProcAddress_v2) F(678, cuLibraryLoadData) F(679, cuLibraryLoadFromFile) F(680, cuLibraryUnload) \
  F(681, cuLibraryGetKernel) F(682, cuLibraryGetModule) F(683, cuKernelGetFunction) F(684, cuLibraryGetGlobal) \
  F(686, cuKernelGetAttribute) F(687, cuKernelSetAttribute) F(688, cuKernelSetCacheConfig) F(693, cuStreamGetId) F(695, cuCtxGetId) \
  F(697, cuTensorMapEncodeTiled) F(698, cuTensorMapEncodeIm2col) F(699, cuTensorMapReplaceAddress) F(705, cuCtxSetFlags)
// clang-format on
