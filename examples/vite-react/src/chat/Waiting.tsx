/** Nothing of the answer has come yet. */
export function Waiting() {
  return (
    <div className="flex h-7 items-center gap-1.5" aria-hidden="true">
      {['', '[animation-delay:200ms]', '[animation-delay:400ms]'].map((delay) => (
        <span key={delay} className={`size-2 motion-safe:animate-pulse rounded-full bg-accent ${delay}`} />
      ))}
    </div>
  );
}
