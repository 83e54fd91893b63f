import type { Bot, ChannelMessage } from 'bot-relay-client/react';
import { MAIN_BUTTON, OTHER_BUTTON } from '../ui/buttons.ts';

interface Props extends Pick<Bot, 'consent'> {
  readonly message: ChannelMessage;
}

/** The tools that a bot has used, or asks to use. */
export function Tools({ message, consent }: Props) {
  const tools = message.parts.filter((part) => part.type === 'dynamic-tool');
  return tools.map((tool) =>
    tool.state === 'approval-requested' ? (
      <div
        key={tool.toolCallId}
        className="flex flex-wrap items-center gap-3 rounded-2xl border border-line bg-raised p-4"
      >
        <p className="grow">
          May I use <strong className="font-semibold">{tool.toolName}</strong>?
        </p>
        <button type="button" className={OTHER_BUTTON} onClick={() => consent(tool.toolCallId, false)}>
          No
        </button>
        <button type="button" className={MAIN_BUTTON} onClick={() => consent(tool.toolCallId, true)}>
          Allow
        </button>
      </div>
    ) : (
      <p key={tool.toolCallId} className="text-sm text-muted">
        {tool.state === 'output-available' ? 'Used' : 'Uses'} {tool.toolName}
      </p>
    ),
  );
}
