/** The groups of the bot service's operations that a configuration can enable, for all bots or for one. */
export const OPERATION_GROUPS = ['message', 'chat', 'files', 'metadata', 'sandbox'] as const;
export type OperationGroup = (typeof OPERATION_GROUPS)[number];
