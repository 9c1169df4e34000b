"""The customers, with the colleague and the status of each."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from ludus.environments.workplace_assistant.desk import Desk, Id, Maybe, Text, page_of, reads, writes
from ludus.environments.workplace_assistant.rules import PRODUCTS, STATUSES, choose
from ludus.environments.workplace_assistant.tables import CUSTOMERS

#: The fields in the order in which the tool lists them.
UPDATABLE = (
    "customer_name",
    "assigned_to_email",
    "customer_email",
    "customer_phone",
    "last_contact_date",
    "product_interest",
    "status",
    "notes",
    "follow_up_by",
)
NO_FILTER = "Nothing to search for. Give a name, an address, a product, a status or a date."


class Customers(Desk):
    """The customer relationship manager."""

    @reads
    async def customer_relationship_manager_search_customers(
        self,
        customer_name: Text = "",
        customer_email: Text = "",
        product_interest: Text = "",
        status: Text = "",
        assigned_to_email: Text = "",
        last_contact_date_min: Text = "",
        last_contact_date_max: Text = "",
        follow_up_by_min: Text = "",
        follow_up_by_max: Text = "",
        page: int = 1,
        page_size: int = 5,
    ) -> Any:
        """Search the customers that fit all that is given. Of names, addresses and products a part is enough.

        Args:
            customer_name: Name of the customer.
            customer_email: Address of the customer.
            product_interest: What the customer is interested in.
            status: How far one has got: 'Qualified', 'Won', 'Lost', 'Lead' or 'Proposal'.
            assigned_to_email: Address of the person who looks after the customer.
            last_contact_date_min: First day of the last contact, YYYY-MM-DD.
            last_contact_date_max: Last day of the last contact, YYYY-MM-DD.
            follow_up_by_min: First day of the next contact, YYYY-MM-DD.
            follow_up_by_max: Last day of the next contact, YYYY-MM-DD.
            page: Which page of the results to return.
            page_size: How many customers a page holds.
        """
        parts = {
            "customer_name": customer_name,
            "customer_email": customer_email,
            "product_interest": product_interest,
            "status": status,
            "assigned_to_email": assigned_to_email,
        }
        dates = {
            "last_contact_date": (last_contact_date_min, last_contact_date_max),
            "follow_up_by": (follow_up_by_min, follow_up_by_max),
        }
        if not any(parts.values()) and not any(map(any, dates.values())):
            return NO_FILTER
        if status:
            self.rules.one_status(status)
        rows = self.office.customers.rows()
        for column, part in parts.items():
            if part:
                rows = await self.rules.containing(rows, part, column)
        for column, (low, high) in dates.items():
            rows = self.rules.between(rows, itemgetter(column), (f"{column}_min", low), (f"{column}_max", high))
        return page_of("customers", rows, page, page_size) if rows else "No customers found."

    @writes
    async def customer_relationship_manager_update_customer(self, customer_id: Id, field: Text, new_value: Text) -> Any:
        """Change one field of a customer.

        Args:
            customer_id: Id of the customer.
            field: One of 'customer_name', 'assigned_to_email', 'customer_email', 'customer_phone', 'last_contact_date', 'product_interest', 'status', 'notes', 'follow_up_by'.
            new_value: What to put there.
        """  # noqa: E501
        if not customer_id or not field or not new_value:
            return "Customer ID, field, or new value not provided."
        if field == "status" and new_value not in STATUSES:
            return choose("Status", STATUSES)
        if field == "product_interest" and new_value not in PRODUCTS:
            return choose("Product interest", PRODUCTS)
        if field in ("customer_email", "assigned_to_email"):
            new_value = new_value.lower()
        if self.office.customers.find(customer_id) is None:
            return "Customer not found."
        if field not in CUSTOMERS or field in self.rules.fixed:
            return choose("Field", UPDATABLE)
        if field == "assigned_to_email":
            self.rules.address(field, new_value)
        if field in ("last_contact_date", "follow_up_by"):
            self.rules.dated(field, new_value)
        self.office.customers.update(customer_id, field, new_value)
        return "Customer updated successfully."

    @writes
    async def customer_relationship_manager_add_customer(
        self,
        customer_name: Text,
        assigned_to_email: Text,
        status: Text,
        customer_email: Maybe = None,
        customer_phone: Maybe = None,
        last_contact_date: Maybe = None,
        product_interest: Maybe = None,
        notes: Maybe = "",
        follow_up_by: Maybe = None,
    ) -> Any:
        """Add a customer. Returns the new id.

        Args:
            customer_name: Name of the customer.
            assigned_to_email: Address of the person who looks after the customer.
            status: One of 'Qualified', 'Won', 'Lost', 'Lead', 'Proposal'.
            customer_email: Address of the customer.
            customer_phone: Phone number of the customer.
            last_contact_date: Day of the last contact, YYYY-MM-DD.
            product_interest: One of 'Software', 'Hardware', 'Services', 'Consulting', 'Training'.
            notes: What else is known.
            follow_up_by: Day of the next contact, YYYY-MM-DD.
        """
        if not customer_name or not assigned_to_email or not status:
            return "Please provide all required fields: customer_name, assigned_to_email, status."
        row = {
            "customer_id": self.rules.new_id(self.office.customers),
            "assigned_to_email": assigned_to_email.lower(),
            "customer_name": customer_name,
            "customer_email": customer_email.lower() if customer_email else customer_email,
            "customer_phone": customer_phone,
            "last_contact_date": last_contact_date,
            "product_interest": product_interest,
            "status": status,
            "follow_up_by": follow_up_by,
            "notes": notes,
        }
        self.rules.new_customer(row)
        self.office.customers.add(row)
        return row["customer_id"]

    @writes
    async def customer_relationship_manager_delete_customer(self, customer_id: Id) -> Any:
        """Delete a customer.

        Args:
            customer_id: Id of the customer.
        """
        if not customer_id:
            return "Customer ID not provided."
        done = self.office.customers.remove(customer_id)
        return "Customer deleted successfully." if done else "Customer not found."
