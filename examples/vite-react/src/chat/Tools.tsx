import type { Bot, ChannelMessage, ToolPart } from 'bot-relay-client/react';
import { MAIN_BUTTON, OTHER_BUTTON } from '../ui/buttons.ts';

interface Props extends Pick<Bot, 'consent'> {
  readonly message: ChannelMessage;
}

/** The tools that a bot has used, or asks to use. */
export function Tools({ message, consent }: Props) {
  const tools = message.parts.filter((part) => part.type === 'dynamic-tool');
  return tools.map((tool) =>
    tool.state === 'approval-requested' ? (
      <Question key={tool.toolCallId} tool={tool} consent={consent} />
    ) : (
      <p key={tool.toolCallId} className="text-sm text-muted">
        {whatHappened(tool)}
      </p>
    ),
  );
}

interface QuestionProps extends Pick<Bot, 'consent'> {
  readonly tool: ToolPart;
}

/** Says what the tool would be called with, so that the user knows what they allow. */
function Question({ tool: { toolCallId, toolName, input }, consent }: QuestionProps) {
  return (
    <div className="grid gap-3 rounded-2xl border border-line bg-raised p-4">
      <p>
        May I use <strong className="font-semibold">{toolName}</strong>?
      </p>
      <pre className="max-h-48 overflow-auto rounded-xl bg-side px-4 py-3 text-sm">
        {JSON.stringify(input, null, 2)}
      </pre>
      <div className="flex flex-wrap gap-3">
        <button type="button" className={MAIN_BUTTON} onClick={() => consent(toolCallId, true)}>
          Allow
        </button>
        <button type="button" className={OTHER_BUTTON} onClick={() => consent(toolCallId, 'always')}>
          Always allow
        </button>
        <button type="button" className={OTHER_BUTTON} onClick={() => consent(toolCallId, false)}>
          Do not allow
        </button>
      </div>
    </div>
  );
}

function whatHappened(tool: ToolPart): string {
  if (tool.state === 'approval-responded')
    return `You ${tool.approval.approved ? 'allowed' : 'did not allow'} ${tool.toolName}`;
  return `${tool.state === 'output-available' ? 'Used' : 'Uses'} ${tool.toolName}`;
}
