"""Mail, and the directory of colleagues."""

from __future__ import annotations

from typing import Any

from ludus.environments.workplace_assistant.desk import Desk, Id, Text, page_of, reads, writes
from ludus.environments.workplace_assistant.rules import DAY, NOW, Refusal, looks_like_address
from ludus.environments.workplace_assistant.tables import EMAILS

SENT = "Email sent successfully."


class Directory(Desk):
    """The colleagues' addresses."""

    @reads
    async def company_directory_find_email_address(self, name: Text = "") -> Any:
        """Find the email addresses of colleagues. Letter case does not matter.

        Args:
            name: A name or a part of one.
        """
        if not name:
            return "Name not provided."
        return await self.rules.addresses(self.office.tables.directory, name)


class Mail(Desk):
    """The inbox and the outbox."""

    @reads
    async def email_get_email_information_by_id(self, email_id: Id, field: Text) -> Any:
        """Read one field of an email.

        Args:
            email_id: Id of the email.
            field: One of 'email_id', 'inbox/outbox', 'sender/recipient', 'subject', 'sent_datetime', 'body'.
        """
        if not email_id:
            return "Email ID not provided."
        if not field:
            return "Field not provided."
        email = self.office.emails.find(email_id)
        if email is None:
            return "Email not found."
        if field not in email:
            return f"Field '{field}' not found. Available fields: {', '.join(EMAILS)}"
        return {field: email[field]}

    @reads
    async def email_search_emails(
        self, query: Text = "", date_min: Text = "", date_max: Text = "", page: int = 1, page_size: int = 5
    ) -> Any:
        """Search the emails, newest first. An email is found if its subject, body and address hold every word.

        Args:
            query: Words to look for.
            date_min: First day, YYYY-MM-DD.
            date_max: Last day, YYYY-MM-DD.
            page: Which page of the results to return.
            page_size: How many emails a page holds.
        """
        try:
            words = query.lower().split()
            emails = [row for row in self.office.emails.rows() if not words or _holds(row, words)]
            emails.sort(key=lambda row: str(row["sent_datetime"]), reverse=True)
            if date_min:
                first = self.rules.moment("date_min", date_min, DAY).date().isoformat()
                emails = [row for row in emails if row["sent_datetime"][:10] >= first]
            if date_max:
                last = self.rules.moment("date_max", date_max, DAY).date().isoformat()
                emails = [row for row in emails if row["sent_datetime"][:10] <= last]
            return page_of("emails", emails, page, page_size) if emails else "No emails found."
        except (Refusal, AttributeError, TypeError, ValueError) as error:
            return f"Error searching emails: {error}"

    @writes
    async def email_send_email(self, recipient: Text, subject: Text, body: Text) -> Any:
        """Send an email.

        Args:
            recipient: Address of the recipient.
            subject: Subject of the email.
            body: Text of the email.
        """
        return _send(self, recipient, subject, body)

    @writes
    async def email_delete_email(self, email_id: Id) -> Any:
        """Delete an email.

        Args:
            email_id: Id of the email.
        """
        if not email_id:
            return "Email ID not provided."
        return "Email deleted successfully." if self.office.emails.remove(email_id) else "Email not found."

    @writes
    async def email_forward_email(self, email_id: Id, recipient: Text) -> Any:
        """Forward an email to somebody.

        Args:
            email_id: Id of the email.
            recipient: Address of the recipient.
        """
        if not email_id or not recipient:
            return "Email ID or recipient not provided."
        if not looks_like_address(recipient):
            return "Invalid recipient email address."
        email = self.office.emails.find(email_id)
        if email is None:
            return "Email not found."
        answer = _send(self, recipient, f"FW: {email['subject']}", email["body"])
        return "Email forwarded successfully." if answer == SENT else answer

    @writes
    async def email_reply_email(self, email_id: Id, body: Text) -> Any:
        """Reply to an email.

        Args:
            email_id: Id of the email that is answered.
            body: Text of the reply.
        """
        if not email_id or not body:
            return "Email ID or body not provided."
        email = self.office.emails.find(email_id)
        if email is None:
            return "Email not found."
        answer = _send(self, email["sender/recipient"], f"RE: {email['subject']}", body)
        return "Email replied successfully." if answer == SENT else answer


def _send(desk: Desk, recipient: str, subject: str, body: str) -> str:
    if not recipient or not subject or not body:
        return "Recipient, subject, or body not provided."
    if not looks_like_address(recipient):
        return "Invalid recipient email address."
    number = desk.rules.new_email_id(desk.office.emails)
    row = dict(zip(EMAILS, (number, "outbox", recipient.lower(), subject, NOW, body), strict=True))
    desk.office.emails.add(row)
    desk.office.sent.append(row)
    return SENT


def _holds(email: dict[str, Any], words: list[str]) -> bool:
    text = f"{email['subject']} {email['body']} {email['sender/recipient']}".lower()
    return all(word in text for word in words)
