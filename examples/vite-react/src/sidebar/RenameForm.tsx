interface Props {
  readonly title: string;
  readonly onRename: (title: string) => void;
  /** Called when the field has lost the focus. */
  readonly onClose: () => void;
  /** Moves the focus to what comes after the field. */
  readonly onLeave: () => void;
}

/** Enter keeps the new title, Escape the old one. */
export function RenameForm({ title, onRename, onClose, onLeave }: Props) {
  return (
    <form
      className="grow"
      onSubmit={(event) => {
        event.preventDefault();
        const next = `${new FormData(event.currentTarget).get('title')}`.trim();
        if (next) onRename(next);
        onLeave();
      }}
    >
      <input
        name="title"
        aria-label="Title of the chat"
        defaultValue={title}
        maxLength={80}
        autoComplete="off"
        ref={(input) => input?.select()}
        className="min-h-11 w-full rounded-xl border border-line bg-raised px-3 text-sm"
        onBlur={onClose}
        onKeyDown={(event) => {
          if (event.key !== 'Escape') return;
          // Not the sheet around it.
          event.preventDefault();
          onLeave();
        }}
      />
    </form>
  );
}
