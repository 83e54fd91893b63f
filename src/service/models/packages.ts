import { ModelError } from './provider-error.ts';

/**
 * The packages of the AI SDK. They are optional: each is loaded when a setting needs it, never before. Where one is
 * missing, the error says the command that installs it, with the majors that this program was made for.
 */
export const packages = {
  async ai() {
    const ai = await loaded('', import('ai'));
    // Else a setting that a model does not take is a warning of the process, for each message.
    Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false });
    return ai;
  },
  openai: () => loaded('@ai-sdk/openai@4', import('@ai-sdk/openai')),
  azure: () => loaded('@ai-sdk/azure@4', import('@ai-sdk/azure')),
  anthropic: () => loaded('@ai-sdk/anthropic@4', import('@ai-sdk/anthropic')),
  mistral: () => loaded('@ai-sdk/mistral@4', import('@ai-sdk/mistral')),
  google: () => loaded('@ai-sdk/google@4', import('@ai-sdk/google')),
  'openai-compatible': () => loaded('@ai-sdk/openai-compatible@3', import('@ai-sdk/openai-compatible')),
};

async function loaded<T>(name: string, loading: Promise<T>): Promise<T> {
  try {
    return await loading;
  } catch (error) {
    const isMissing = error instanceof Error && 'code' in error && error.code === 'ERR_MODULE_NOT_FOUND';
    throw isMissing ? new ModelError('MODEL_PACKAGE_MISSING', `npm install ai@7 ${name}`.trim()) : error;
  }
}
